#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/gpu/device/call.h"

#if !defined(__CUDACC__)
#include "collectives/halves.h"
#endif

// Elements and bytes of the caller's memory. How kernels combine elements: in the order of ranks, f16 and bf16 in f32
// and rounded once, integers modulo 2^bits.
namespace fairway::collectives::gpu {

struct Half {
  std::uint16_t bits;
};
struct Bfloat {
  std::uint16_t bits;
};
struct E4m3 {
  std::uint8_t bits;
};
struct E5m2 {
  std::uint8_t bits;
};
struct Byte {  // of what is moved, not combined
  unsigned char bits;
};
struct PassedByte {  // of a long broadcast, which a rank passes on
  unsigned char bits;
};
template <class T>
inline constexpr bool kPassesOn = std::is_same_v<T, PassedByte>;
template <class T>
inline constexpr bool kCombines = !std::is_same_v<T, Byte> && !kPassesOn<T>;

#if defined(__CUDACC__)
FAIRWAY_IN_KERNELS float widen(Half value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
FAIRWAY_IN_KERNELS void narrow(float wide, Half& out) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(wide));
}
FAIRWAY_IN_KERNELS float widen(Bfloat value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
}
FAIRWAY_IN_KERNELS void narrow(float wide, Bfloat& out) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(wide));
}
// 8 bits: by instruction where the GPU has it, else through the 16 bits of f16, of whose numbers both are a part.
FAIRWAY_IN_KERNELS float widen(E5m2 value) {
  return widen(Half{static_cast<std::uint16_t>(value.bits << 8)});
}
FAIRWAY_IN_KERNELS float widen(E4m3 value) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(value.bits)));
  return widen(Half{static_cast<std::uint16_t>(pair)});
#else
  const std::uint32_t magnitude = value.bits & 0x7FU, bits = magnitude == 0x7FU ? 0x7E00U : magnitude << 7;
  return widen(Half{static_cast<std::uint16_t>(bits | (value.bits & 0x80U) << 8)}) * 256.0F;
#endif
}
#if __CUDA_ARCH__ < 900
// As in halves.h.
template <int kMantissa, int kBias, std::uint32_t kLargest>
FAIRWAY_IN_KERNELS std::uint8_t narrow_float(float value) {
  const std::uint32_t word = __float_as_uint(value), magnitude = word & 0x7FFFFFFFU;
  constexpr int kDropped = 23 - kMantissa;
  constexpr std::uint32_t kAdd = static_cast<std::uint32_t>(127 + 1 - kBias - kMantissa + 23) << 23;
  const std::uint32_t rounded = magnitude + ((1U << (kDropped - 1)) - 1) + ((magnitude >> kDropped) & 1U);
  const std::uint32_t normal = (rounded >> kDropped) - ((127U - kBias) << kMantissa);
  const std::uint32_t small = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kAdd)) - kAdd;
  const bool is_small = magnitude < static_cast<std::uint32_t>(127 + 1 - kBias) << 23;
  std::uint32_t code = is_small ? small : normal > kLargest ? kLargest : normal;
  if (magnitude > 0x7F800000U) code = 0x7F;
  return static_cast<std::uint8_t>(code | (word >> 24 & 0x80U));
}
#endif
FAIRWAY_IN_KERNELS void narrow(float wide, E4m3& out) {
#if __CUDA_ARCH__ >= 900
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(wide));
  out.bits = static_cast<std::uint8_t>(pair);
#else
  out.bits = narrow_float<3, 7, 0x7E>(wide);
#endif
}
FAIRWAY_IN_KERNELS void narrow(float wide, E5m2& out) {
#if __CUDA_ARCH__ >= 900
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(wide));
  out.bits = static_cast<std::uint8_t>(pair);
#else
  out.bits = narrow_float<2, 15, 0x7B>(wide);
#endif
}
// Rounded before anything is added to it.
FAIRWAY_IN_KERNELS float scaled(float value, double factor) {
  return __fmul_rn(value, static_cast<float>(factor));
}
FAIRWAY_IN_KERNELS double scaled(double value, double factor) {
  return __dmul_rn(value, factor);
}
#else
inline float widen(Half value) {
  return float_of_half(value.bits);
}
inline void narrow(float wide, Half& out) {
  out.bits = half_of_float(wide);
}
inline float widen(Bfloat value) {
  return float_of_bfloat(value.bits);
}
inline void narrow(float wide, Bfloat& out) {
  out.bits = bfloat_of_float(wide);
}
inline float widen(E4m3 value) {
  return float_of_e4m3(value.bits);
}
inline void narrow(float wide, E4m3& out) {
  out.bits = e4m3_of_float(wide);
}
inline float widen(E5m2 value) {
  return float_of_e5m2(value.bits);
}
inline void narrow(float wide, E5m2& out) {
  out.bits = e5m2_of_float(wide);
}
inline float scaled(float value, double factor) {
  return value * static_cast<float>(factor);
}
inline double scaled(double value, double factor) {
  return value * factor;
}
#endif
template <class T>
FAIRWAY_IN_KERNELS T widen(T value) {
  return value;
}
template <class T>
FAIRWAY_IN_KERNELS void narrow(T wide, T& out) {
  out = wide;
}

template <class T>
using Wide = decltype(widen(T{}));

// Whether inputs of that type may be multiplied by a factor before.
template <class T>
inline constexpr bool kScales = !std::is_integral<T>::value;

// Integers wrap around; narrow ones are not promoted to int, whose overflow is undefined.
template <class T, bool kInteger = std::is_integral<T>::value>
struct Wraps {
  using type = T;
};
template <class T>
struct Wraps<T, true> {
  using type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
};

// So many bytes of elements, as they lie in memory.
template <class T, unsigned kBytes>
union Elements {
  static constexpr unsigned kCount = kBytes / sizeof(T);
  std::uint64_t words[kBytes / 8];
  T each[kCount];
};

// The ranks' elements, combined one rank after the other.
template <class T, unsigned kBytes>
class Sums {
 public:
  using E = Elements<T, kBytes>;
  FAIRWAY_IN_KERNELS void add(Combine how, unsigned rank, const E& next) {
    if (rank == 0) return begin(next);
    with(how, [&](auto op) { fold(next, op); });
  }
  // At once, for up to kRanks of them: of(rank). One operation's code is all that runs.
  template <unsigned kRanks, class Of>
  FAIRWAY_IN_KERNELS void add_all(Combine how, unsigned size, Of of) {
    begin(of(0));
    with(how, [&](auto op) {
      FAIRWAY_UNROLL
      for (unsigned rank = 1; rank < kRanks; ++rank)
        if (rank < size) fold(of(rank), op);
    });
  }
  FAIRWAY_IN_KERNELS E end(Combine how, unsigned size) {
    E out;
    if (how == Combine::average) {
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < E::kCount; ++k) sums_[k] = static_cast<Wide<T>>(sums_[k] / static_cast<Wide<T>>(size));
    }
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < E::kCount; ++k) narrow(sums_[k], out.each[k]);
    return out;
  }

 private:
  using W = Wide<T>;
  using U = typename Wraps<W>::type;
  struct Add {
    FAIRWAY_IN_KERNELS W operator()(W a, W b) const { return static_cast<W>(static_cast<U>(a) + static_cast<U>(b)); }
  };
  struct Multiply {
    FAIRWAY_IN_KERNELS W operator()(W a, W b) const { return static_cast<W>(static_cast<U>(a) * static_cast<U>(b)); }
  };
  struct Least {
    FAIRWAY_IN_KERNELS W operator()(W a, W b) const { return b < a ? b : a; }
  };
  struct Most {
    FAIRWAY_IN_KERNELS W operator()(W a, W b) const { return a < b ? b : a; }
  };

  template <class Use>
  static FAIRWAY_IN_KERNELS void with(Combine how, Use use) {
    switch (how) {
      case Combine::product: return use(Multiply{});
      case Combine::min: return use(Least{});
      case Combine::max: return use(Most{});
      case Combine::sum:
      case Combine::average: break;
    }
    use(Add{});
  }
  FAIRWAY_IN_KERNELS void begin(const E& first) {
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < E::kCount; ++k) sums_[k] = widen(first.each[k]);
  }
  template <class Op>
  FAIRWAY_IN_KERNELS void fold(const E& next, Op op) {
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < E::kCount; ++k) sums_[k] = op(sums_[k], widen(next.each[k]));
  }

  Wide<T> sums_[E::kCount] = {};
};

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
