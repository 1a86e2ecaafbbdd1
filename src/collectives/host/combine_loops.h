#pragma once

// The loops of combine_of(), compiled once for every CPU and once for those with AVX2: each file that includes this
// says in FAIRWAY_LOOPS into which namespace, so that no function of one serves the other.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "collectives/halves.h"
#include "collectives/host/reduce.h"

#ifndef FAIRWAY_LOOPS
#define FAIRWAY_LOOPS any_loops
#endif

// `into` is an operand or apart from both, so no iteration reads what another wrote.
#if defined(__clang__)
#define FAIRWAY_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define FAIRWAY_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace fairway::collectives::FAIRWAY_LOOPS {

// Integers wrap around; narrow ones must not be promoted to int.
template <class T, bool kInteger = std::is_integral_v<T>>
struct Wide {
  using type = T;
};
template <class T>
struct Wide<T, true> {
  using type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
};

struct Add {
  template <class T>
  static T of(T a, T b) {
    using W = typename Wide<T>::type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Multiply {
  template <class T>
  static T of(T a, T b) {
    using W = typename Wide<T>::type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  }
};
struct Least {
  template <class T>
  static T of(T a, T b) {
    return b < a ? b : a;
  }
};
struct Most {
  template <class T>
  static T of(T a, T b) {
    return a < b ? b : a;
  }
};

template <class T, class Op>
void combine(void* into, const void* a, const void* b, std::size_t count) {
  auto* const out = static_cast<std::byte*>(into);
  const auto* const left = static_cast<const std::byte*>(a);
  const auto* const right = static_cast<const std::byte*>(b);
  FAIRWAY_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    T x, y;
    std::memcpy(&x, left + i * sizeof(T), sizeof(T));
    std::memcpy(&y, right + i * sizeof(T), sizeof(T));
    x = Op::template of<T>(x, y);
    std::memcpy(out + i * sizeof(T), &x, sizeof(T));
  }
}

template <class Op, float (*kWiden)(std::uint16_t), std::uint16_t (*kNarrow)(float)>
void combine_narrow(void* into, const void* a, const void* b, std::size_t count) {
  auto* const out = static_cast<std::byte*>(into);
  const auto* const left = static_cast<const std::byte*>(a);
  const auto* const right = static_cast<const std::byte*>(b);
  FAIRWAY_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t x, y;
    std::memcpy(&x, left + i * 2, 2);
    std::memcpy(&y, right + i * 2, 2);
    x = kNarrow(Op::template of<float>(kWiden(x), kWiden(y)));
    std::memcpy(out + i * 2, &x, 2);
  }
}

#if defined(__F16C__)
// With the CPU's own conversions, eight at a time.
template <class Op>
void combine_half(void* into, const void* a, const void* b, std::size_t count) {
  auto* const out = static_cast<std::byte*>(into);
  const auto* const left = static_cast<const std::byte*>(a);
  const auto* const right = static_cast<const std::byte*>(b);
  const auto widen = [](const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  };
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = widen(left + i * 2), y = widen(right + i * 2);
    __m256 z;
    if constexpr (std::is_same_v<Op, Add>) {
      z = _mm256_add_ps(x, y);
    } else if constexpr (std::is_same_v<Op, Multiply>) {
      z = _mm256_mul_ps(x, y);
    } else if constexpr (std::is_same_v<Op, Least>) {
      z = _mm256_min_ps(y, x);  // of two equal or unordered ones the second, as in Least
    } else {
      z = _mm256_max_ps(y, x);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * 2), _mm256_cvtps_ph(z, _MM_FROUND_TO_NEAREST_INT));
  }
  combine_narrow<Op, float_of_half, half_of_float>(out + i * 2, left + i * 2, right + i * 2, count - i);
}
#else
template <class Op>
void combine_half(void* into, const void* a, const void* b, std::size_t count) {
  combine_narrow<Op, float_of_half, half_of_float>(into, a, b, count);
}
#endif

template <class Op>
constexpr std::array<Combine, 12> kByType{
    combine<std::int8_t, Op>,  combine<std::uint8_t, Op>,
    combine<std::int16_t, Op>, combine<std::uint16_t, Op>,
    combine<std::int32_t, Op>, combine<std::uint32_t, Op>,
    combine<std::int64_t, Op>, combine<std::uint64_t, Op>,
    combine_half<Op>,          combine_narrow<Op, float_of_bfloat, bfloat_of_float>,
    combine<float, Op>,        combine<double, Op>,
};

inline Combine find(DataType type, Reduction reduction) {
  const auto at = static_cast<std::size_t>(type);
  if (at >= kByType<Add>.size()) return nullptr;
  switch (reduction) {
    case Reduction::product: return kByType<Multiply>[at];
    case Reduction::min: return kByType<Least>[at];
    case Reduction::max: return kByType<Most>[at];
    case Reduction::sum:
    case Reduction::average:
    case Reduction::custom:
    case Reduction::premul_sum: break;
  }
  return kByType<Add>[at];
}

template <class T>
void scale(void* into, const void* from, std::size_t count, double by) {
  auto* const out = static_cast<std::byte*>(into);
  const auto* const in = static_cast<const std::byte*>(from);
  const T factor = static_cast<T>(by);
  FAIRWAY_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    T x;
    std::memcpy(&x, in + i * sizeof(T), sizeof(T));
    x *= factor;
    std::memcpy(out + i * sizeof(T), &x, sizeof(T));
  }
}

template <float (*kWiden)(std::uint16_t), std::uint16_t (*kNarrow)(float)>
void scale_narrow(void* into, const void* from, std::size_t count, double by) {
  auto* const out = static_cast<std::byte*>(into);
  const auto* const in = static_cast<const std::byte*>(from);
  const auto factor = static_cast<float>(by);
  FAIRWAY_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t x;
    std::memcpy(&x, in + i * 2, 2);
    x = kNarrow(kWiden(x) * factor);
    std::memcpy(out + i * 2, &x, 2);
  }
}

inline void scale_half(void* into, const void* from, std::size_t count, double by) {
  std::size_t i = 0;
#if defined(__F16C__)
  const __m256 factor = _mm256_set1_ps(static_cast<float>(by));
  for (; i + 8 <= count; i += 8) {
    const auto* const in = reinterpret_cast<const __m128i*>(static_cast<const std::byte*>(from) + i * 2);
    const __m256 x = _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128(in)), factor);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<std::byte*>(into) + i * 2),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  scale_narrow<float_of_half, half_of_float>(static_cast<std::byte*>(into) + i * 2,
                                             static_cast<const std::byte*>(from) + i * 2, count - i, by);
}

inline Scale find_scale(DataType type) {
  switch (type) {
    case DataType::f16: return scale_half;
    case DataType::bf16: return scale_narrow<float_of_bfloat, bfloat_of_float>;
    case DataType::f32: return scale<float>;
    case DataType::f64: return scale<double>;
    default: return nullptr;
  }
}

}  // namespace fairway::collectives::FAIRWAY_LOOPS
