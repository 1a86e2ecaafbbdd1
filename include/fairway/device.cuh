#pragma once

#include <cstdint>

// For CUDA kernels that access a Mapping (fairway/mapping.h) by themselves: put bytes, then signal; at the other side,
// wait for the signal. Needs nothing but nvcc and this file. Signals are 8-byte aligned 64-bit words in GPU memory.
//
// Whoever sees a signal also sees every byte that the threads of the signalling group wrote before it, to any memory,
// and everything that they had seen themselves. This holds between GPUs and with hosts: a signal is a release and a
// wait an acquire, at system scope.
namespace fairway::device {

using Word = std::uint64_t;

// ---- groups: all threads of a group make a call together, with the same arguments ----

struct Thread {
  static __device__ unsigned lane() { return 0; }
  static __device__ unsigned lanes() { return 1; }
  static __device__ void meet() {}
};
struct Warp {  // all 32 threads
  static __device__ unsigned lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
  }
  static __device__ unsigned lanes() { return 32; }
  static __device__ void meet() { __syncwarp(); }
};
struct Block {
  static __device__ unsigned lane() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  static __device__ unsigned lanes() { return blockDim.x * blockDim.y * blockDim.z; }
  static __device__ void meet() { __syncthreads(); }
};

// ---- bytes ----

namespace detail {

// Thread `at` of `of` copies its part, in units of one type, kAtOnce of them in flight.
template <class Unit, unsigned kAtOnce>
__device__ void copy_units(void* to, const void* from, std::uint64_t count, std::uint64_t at, std::uint64_t of) {
  Unit* there = static_cast<Unit*>(to);
  const Unit* here = static_cast<const Unit*>(from);
  for (std::uint64_t i = at; i < count; i += kAtOnce * of) {
    Unit units[kAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k)
      if (i + k * of < count) units[k] = here[i + k * of];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k)
      if (i + k * of < count) there[i + k * of] = units[k];
  }
}

// The 16 bytes that begin `apart` bytes within `low` and go on in `high`.
__device__ inline uint4 cut_from(uint4 low, uint4 high, unsigned apart) {
  unsigned all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const bool by_two = (apart & 8) != 0, by_one = (apart & 4) != 0;
#pragma unroll
  for (unsigned i = 0; i < 6; ++i) all[i] = by_two ? all[i + 2] : all[i];
#pragma unroll
  for (unsigned i = 0; i < 5; ++i) all[i] = by_one ? all[i + 1] : all[i];
  const unsigned bits = apart % 4 * 8;
  return {__funnelshift_r(all[0], all[1], bits), __funnelshift_r(all[1], all[2], bits),
          __funnelshift_r(all[2], all[3], bits), __funnelshift_r(all[3], all[4], bits)};
}

// As copy_units by 16 bytes, from places that do not begin at 16: each word that is read has a byte that is copied.
template <unsigned kAtOnce>
__device__ void copy_shifted(void* to, const void* from, std::uint64_t count, std::uint64_t at, std::uint64_t of) {
  uint4* there = static_cast<uint4*>(to);
  const auto apart = static_cast<unsigned>(reinterpret_cast<std::uint64_t>(from) % 16);
  const uint4* here = reinterpret_cast<const uint4*>(static_cast<const unsigned char*>(from) - apart);
  for (std::uint64_t i = at; i < count; i += kAtOnce * of) {
    uint4 low[kAtOnce], high[kAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k)
      if (i + k * of < count) {
        low[k] = here[i + k * of];
        high[k] = here[i + k * of + 1];
      }
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k)
      if (i + k * of < count) there[i + k * of] = cut_from(low[k], high[k], apart);
  }
}

constexpr std::uint64_t kShiftFrom = 512;  // bytes: for fewer, those before and behind the words cost more

// Copies 16 bytes at a time, but few bytes by the widest unit that fits both addresses.
template <unsigned kAtOnce>
__device__ void copy(void* to, const void* from, std::uint64_t length, std::uint64_t at, std::uint64_t of) {
  const std::uint64_t there = reinterpret_cast<std::uint64_t>(to), here = reinterpret_cast<std::uint64_t>(from);
  const std::uint64_t apart = there ^ here;
  const bool shifted = apart % 16 != 0 && length >= kShiftFrom;
  const std::uint64_t unit = shifted || apart % 16 == 0 ? 16 : apart % 8 == 0 ? 8 : apart % 4 == 0 ? 4 : apart % 2 == 0 ? 2 : 1;
  std::uint64_t head = (unit - there % unit) % unit;
  if (head > length) head = length;
  const std::uint64_t count = (length - head) / unit, tail = head + count * unit;
  auto* bytes = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  for (std::uint64_t i = at; i < head; i += of) bytes[i] = source[i];
  switch (unit) {
    case 16:
      if (shifted)
        copy_shifted<4>(bytes + head, source + head, count, at, of);
      else
        copy_units<uint4, kAtOnce>(bytes + head, source + head, count, at, of);
      break;
    case 8: copy_units<std::uint64_t, 4>(bytes + head, source + head, count, at, of); break;
    case 4: copy_units<std::uint32_t, 4>(bytes + head, source + head, count, at, of); break;
    case 2: copy_units<std::uint16_t, 4>(bytes + head, source + head, count, at, of); break;
    default: copy_units<unsigned char, 4>(bytes + head, source + head, count, at, of); break;
  }
  for (std::uint64_t i = tail + at; i < length; i += of) bytes[i] = source[i];
}

}  // namespace detail

// Copies to or from a Mapping; either side may be the mapping. A signal by the same group comes after the bytes.
template <class Group>
__device__ void put(void* to, const void* from, std::uint64_t length) {
  detail::copy<4>(to, from, length, Group::lane(), Group::lanes());
}
// A large copy by all blocks of a one-dimensional grid, each its part. Signal from a later kernel in the stream, since
// all blocks must be done.
__device__ inline void put_by_grid(void* to, const void* from, std::uint64_t length) {
  const std::uint64_t lanes = Block::lanes();
  detail::copy<8>(to, from, length, blockIdx.x * lanes + Block::lane(), gridDim.x * lanes);
}

// ---- signals ----

template <class Group>
__device__ void signal_set(Word* word, Word value) {
  Group::meet();
  if (Group::lane() == 0) asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// Atomic against other additions to the word only if Mapping::atomics is true.
template <class Group>
__device__ void signal_add(Word* word, Word value) {
  Group::meet();
  if (Group::lane() == 0) asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// A signal by one thread without a release: who sees it need not see bytes that were written before. It takes half the
// time of signal_set, which waits until they have arrived.
__device__ inline void signal_bare(Word* word, Word value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ inline Word signal_read(const Word* word) {
  Word value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

// Nanoseconds of the GPU's clock, which advances in steps of up to a microsecond.
__device__ inline std::uint64_t now() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// One thread waits until the word has reached `value` (compared modulo 2^64). True: the signal came, and the bytes
// before it are visible. False: now() passed `deadline` first, or `ended` was set (Mapping::ended; null: not checked).
__device__ inline bool signal_wait(const Word* word, Word value, std::uint64_t deadline,
                                   const std::uint32_t* ended = nullptr) {
  constexpr unsigned kLooksPerQuestion = 64;
  for (;;) {
#pragma unroll 1
    for (unsigned i = 0; i < kLooksPerQuestion; ++i)
      if (static_cast<std::int64_t>(signal_read(word) - value) >= 0) return true;
    if (now() >= deadline) return false;
    if (ended != nullptr && *static_cast<const volatile std::uint32_t*>(ended) != 0) return false;
  }
}
// The same for a block: thread 0 polls, and all threads get the answer.
__device__ inline bool signal_wait_block(const Word* word, Word value, std::uint64_t deadline,
                                         const std::uint32_t* ended = nullptr) {
  const bool came = Block::lane() == 0 && signal_wait(word, value, deadline, ended);
  return __syncthreads_or(came) != 0;
}

}  // namespace fairway::device
