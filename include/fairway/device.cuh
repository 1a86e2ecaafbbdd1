#pragma once

#include <cstdint>

// For CUDA kernels that reach a Mapping (fairway/mapping.h) by themselves: bytes, then a signal; and at the other side
// the wait for it. Needs nothing but nvcc and this file. Signals are 8-byte aligned 64-bit words in GPU memory.
//
// Whoever sees a signal sees every byte that the threads which took part in the call wrote before it, to any memory,
// and what they had seen themselves. That holds between GPUs and with the hosts (release and acquire at system scope).
namespace fairway::device {

using Word = std::uint64_t;

// ---- who takes part: all threads of it call, with the same arguments ----

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

// The part of thread `at` of `of`: units of one type, several on their way at once.
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

// By the widest units that fit both places: 16 bytes where they lie alike, so many at once.
template <unsigned kAtOnce>
__device__ void copy(void* to, const void* from, std::uint64_t length, std::uint64_t at, std::uint64_t of) {
  const std::uint64_t there = reinterpret_cast<std::uint64_t>(to), here = reinterpret_cast<std::uint64_t>(from);
  const std::uint64_t apart = there ^ here;
  const std::uint64_t unit = apart % 16 == 0 ? 16 : apart % 8 == 0 ? 8 : apart % 4 == 0 ? 4 : apart % 2 == 0 ? 2 : 1;
  std::uint64_t head = (unit - there % unit) % unit;
  if (head > length) head = length;
  const std::uint64_t count = (length - head) / unit, tail = head + count * unit;
  auto* bytes = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  for (std::uint64_t i = at; i < head; i += of) bytes[i] = source[i];
  switch (unit) {
    case 16: copy_units<uint4, kAtOnce>(bytes + head, source + head, count, at, of); break;
    case 8: copy_units<std::uint64_t, 4>(bytes + head, source + head, count, at, of); break;
    case 4: copy_units<std::uint32_t, 4>(bytes + head, source + head, count, at, of); break;
    case 2: copy_units<std::uint16_t, 4>(bytes + head, source + head, count, at, of); break;
    default: copy_units<unsigned char, 4>(bytes + head, source + head, count, at, of); break;
  }
  for (std::uint64_t i = tail + at; i < length; i += of) bytes[i] = source[i];
}

}  // namespace detail

// Copies to or from a Mapping; which side is which does not matter. Over before a signal by the same group.
template <class Group>
__device__ void put(void* to, const void* from, std::uint64_t length) {
  detail::copy<4>(to, from, length, Group::lane(), Group::lanes());
}
// The part of each block of a grid of one dimension, for large ones. A signal needs all blocks to be done: give it from
// a kernel behind this one.
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
// Atomic against others who add there, where Mapping::atomics says so.
template <class Group>
__device__ void signal_add(Word* word, Word value) {
  Group::meet();
  if (Group::lane() == 0) asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// One thread's, that stands for nothing but itself: no byte written before need be seen with it. It saves the time in
// which the GPU makes sure of those, half of a signal's.
__device__ inline void signal_bare(Word* word, Word value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ inline Word signal_read(const Word* word) {
  Word value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

// Nanoseconds of the GPU's clock; it moves in steps of up to a microsecond.
__device__ inline std::uint64_t now() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// One thread's wait until the word has reached `value` (counted on past 2^64). True: it came, and what stood before it
// is seen. False: the time now() passed `deadline` first, or `ended` (Mapping::ended; null: not looked at) was set.
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
// The same for a block: thread 0 looks, all have the answer.
__device__ inline bool signal_wait_block(const Word* word, Word value, std::uint64_t deadline,
                                         const std::uint32_t* ended = nullptr) {
  const bool came = Block::lane() == 0 && signal_wait(word, value, deadline, ended);
  return __syncthreads_or(came) != 0;
}

}  // namespace fairway::device
