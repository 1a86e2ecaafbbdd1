#pragma once

#include <cstdint>

#include "collectives/gpu/device/call.h"
#include "collectives/gpu/device/number.h"

// The caller's memory: its bytes at any alignment, and which of them go to whom.
namespace fairway::collectives::gpu {

// ---- bytes of the caller's memory, at any alignment ----

template <unsigned kBytes>
struct alignas(kBytes) Whole {  // one access
  std::uint64_t words[kBytes / 8];
};
template <unsigned kBytes>
FAIRWAY_IN_KERNELS bool is_wide(const void* at, std::uint64_t left) {
  return left >= kBytes && reinterpret_cast<std::uintptr_t>(at) % kBytes == 0;
}
// Up to 16 bytes that are not one access. By value: what is passed by address goes through memory.
struct Odd {
  std::uint64_t words[2];
};
FAIRWAY_APART Odd load_odd(const unsigned char* at, unsigned bytes) {
  std::uint64_t low = 0, high = 0;
  const auto add = [&](unsigned i, std::uint64_t value) { (i < 8 ? low : high) |= value << (i % 8 * 8); };
  unsigned i = 0;
  FAIRWAY_NOT_UNROLLED
  for (; i + 4 <= bytes && is_wide<4>(at, 4); i += 4) add(i, *reinterpret_cast<const std::uint32_t*>(at + i));
  FAIRWAY_NOT_UNROLLED
  for (; i < bytes; ++i) add(i, at[i]);
  return {{low, high}};
}
FAIRWAY_APART void store_odd(unsigned char* at, unsigned bytes, Odd odd) {
  const auto of = [&](unsigned i) { return (i < 8 ? odd.words[0] : odd.words[1]) >> (i % 8 * 8); };
  unsigned i = 0;
  FAIRWAY_NOT_UNROLLED
  for (; i + 4 <= bytes && is_wide<4>(at, 4); i += 4)
    *reinterpret_cast<std::uint32_t*>(at + i) = static_cast<std::uint32_t>(of(i));
  FAIRWAY_NOT_UNROLLED
  for (; i < bytes; ++i) at[i] = static_cast<unsigned char>(of(i));
}
// `bytes`, at most 16, that are not one access. Those that lie at a multiple of 4 and are so many, as the end of most
// operations and all of the shortest, without a call.
FAIRWAY_IN_KERNELS Odd load_part(const unsigned char* at, unsigned bytes) {
  if ((reinterpret_cast<std::uintptr_t>(at) | bytes) % 4 != 0) return load_odd(at, bytes);
  std::uint32_t quads[4] = {};
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < 4; ++i)
    if (4 * i < bytes) quads[i] = reinterpret_cast<const std::uint32_t*>(at)[i];
  return {
      {static_cast<std::uint64_t>(quads[1]) << 32 | quads[0], static_cast<std::uint64_t>(quads[3]) << 32 | quads[2]}};
}
FAIRWAY_IN_KERNELS void store_part(unsigned char* at, unsigned bytes, const Odd& part) {
  if ((reinterpret_cast<std::uintptr_t>(at) | bytes) % 4 != 0) return store_odd(at, bytes, part);
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < 4; ++i)
    if (4 * i < bytes)
      reinterpret_cast<std::uint32_t*>(at)[i] = static_cast<std::uint32_t>(part.words[i / 2] >> (i % 2 * 32));
}
// `left`: bytes that there are.
template <class T, unsigned kBytes>
FAIRWAY_IN_KERNELS void load_bytes(const unsigned char* at, std::uint64_t left, Elements<T, kBytes>& out) {
  if (is_wide<kBytes>(at, left)) {
    const auto whole = *reinterpret_cast<const Whole<kBytes>*>(at);
    FAIRWAY_UNROLL
    for (unsigned i = 0; i < kBytes / 8; ++i) out.words[i] = whole.words[i];
    return;
  }
  const Odd part = load_part(at, left < kBytes ? static_cast<unsigned>(left) : kBytes);
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < kBytes / 8; ++i) out.words[i] = part.words[i];
}
template <class T, unsigned kBytes>
FAIRWAY_IN_KERNELS void store_bytes(unsigned char* at, std::uint64_t left, const Elements<T, kBytes>& from) {
  Whole<kBytes> whole;
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < kBytes / 8; ++i) whole.words[i] = from.words[i];
  if (is_wide<kBytes>(at, left)) {
    *reinterpret_cast<Whole<kBytes>*>(at) = whole;
    return;
  }
  Odd part = {};
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < kBytes / 8; ++i) part.words[i] = whole.words[i];
  store_part(at, left < kBytes ? static_cast<unsigned>(left) : kBytes, part);
}

// ---- who sends what to whom ----

// Block `to` of the input goes to rank `to`; else all of it goes to all.
FAIRWAY_IN_KERNELS bool is_to_each(Work work) {
  return work == Work::to_each || work == Work::reduce_to_each;
}
// Whether `from` sends bytes to others.
FAIRWAY_IN_KERNELS bool sends(const Call& call, unsigned from) {
  return call.work != Work::nothing && (call.work != Work::from_root || from == call.root);
}
FAIRWAY_IN_KERNELS const unsigned char* input_for(const Call& call, unsigned to, std::uint64_t block_bytes) {
  return call.input + (is_to_each(call.work) ? to * block_bytes : 0);
}
FAIRWAY_IN_KERNELS unsigned char* output_from(const Call& call, unsigned from, std::uint64_t block_bytes) {
  return call.output + (call.work == Work::to_all || call.work == Work::to_each ? from * block_bytes : 0);
}

FAIRWAY_IN_KERNELS std::uint64_t at_most(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
}

}  // namespace fairway::collectives::gpu
