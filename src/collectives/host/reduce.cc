#define FAIRWAY_LOOPS plain_loops
#include "collectives/host/reduce.h"

#include <algorithm>
#include <array>

#include "collectives/host/combine_loops.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif
#if defined(FAIRWAY_HAVE_AVX2_LOOPS)
#include <cpuid.h>
#endif

namespace fairway::collectives {

#if defined(FAIRWAY_HAVE_AVX2_LOOPS)
Combine avx2_combine_of(DataType type, Reduction reduction);  // combine_avx2.cc
Scale avx2_scale_of(DataType type);

namespace {
bool look_for_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1U << 29;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}
bool has_avx2() {
  static const bool has = look_for_avx2();  // in a virtual machine the instruction that tells costs microseconds
  return has;
}
}  // namespace

Combine combine_of(DataType type, Reduction reduction) {
  return has_avx2() ? avx2_combine_of(type, reduction) : plain_loops::find(type, reduction);
}
Scale scale_of(DataType type) {
  return has_avx2() ? avx2_scale_of(type) : plain_loops::find_scale(type);
}
#else
Combine combine_of(DataType type, Reduction reduction) {
  return plain_loops::find(type, reduction);
}
Scale scale_of(DataType type) {
  return plain_loops::find_scale(type);
}
#endif

Combine plain_combine_of(DataType type, Reduction reduction) {
  return plain_loops::find(type, reduction);
}
Scale plain_scale_of(DataType type) {
  return plain_loops::find_scale(type);
}

namespace {

template <class T>
void divide_all(void* data, std::size_t count, std::uint32_t by) {
  auto* const bytes = static_cast<std::byte*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    T x;
    std::memcpy(&x, bytes + i * sizeof(T), sizeof(T));
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
      x = static_cast<T>(std::int64_t{x} / std::int64_t{by});
    else if constexpr (std::is_integral_v<T>)
      x = static_cast<T>(std::uint64_t{x} / by);
    else
      x /= static_cast<T>(by);
    std::memcpy(bytes + i * sizeof(T), &x, sizeof(T));
  }
}

template <float (*kWiden)(std::uint16_t), std::uint16_t (*kNarrow)(float)>
void divide_narrow(void* data, std::size_t count, std::uint32_t by) {
  auto* const bytes = static_cast<std::byte*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t x;
    std::memcpy(&x, bytes + i * 2, 2);
    x = kNarrow(kWiden(x) / static_cast<float>(by));
    std::memcpy(bytes + i * 2, &x, 2);
  }
}

}  // namespace

void divide(void* data, DataType type, std::size_t count, std::uint32_t by) {
  switch (type) {
    case DataType::i8: return divide_all<std::int8_t>(data, count, by);
    case DataType::u8: return divide_all<std::uint8_t>(data, count, by);
    case DataType::i16: return divide_all<std::int16_t>(data, count, by);
    case DataType::u16: return divide_all<std::uint16_t>(data, count, by);
    case DataType::i32: return divide_all<std::int32_t>(data, count, by);
    case DataType::u32: return divide_all<std::uint32_t>(data, count, by);
    case DataType::i64: return divide_all<std::int64_t>(data, count, by);
    case DataType::u64: return divide_all<std::uint64_t>(data, count, by);
    case DataType::f16: return divide_narrow<float_of_half, half_of_float>(data, count, by);
    case DataType::bf16: return divide_narrow<float_of_bfloat, bfloat_of_float>(data, count, by);
    case DataType::f32: return divide_all<float>(data, count, by);
    case DataType::f64: return divide_all<double>(data, count, by);
    case DataType::f8e4m3:
    case DataType::f8e5m2: break;  // narrow() does
  }
}

// Plain stores fetch each line before they overwrite it.
void copy_past_caches(void* into, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  auto* to = static_cast<std::byte*>(into);
  const auto* source = static_cast<const std::byte*>(from);
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, source, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine)
    for (std::size_t part = 0; part < kLine; part += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at + part)));
  _mm_sfence();
  std::memcpy(to + at, source + at, bytes - at);
#else
  std::memcpy(into, from, bytes);
#endif
}

void widen(float* into, const void* from, DataType type, std::size_t count) {
  const auto* const bytes = static_cast<const std::uint8_t*>(from);
  if (type == DataType::f8e4m3)
    for (std::size_t i = 0; i < count; ++i) into[i] = float_of_e4m3(bytes[i]);
  else
    for (std::size_t i = 0; i < count; ++i) into[i] = float_of_e5m2(bytes[i]);
}

void combine_wide(float* into, const void* from, DataType type, Reduction reduction, std::size_t count) {
  const Combine combine = combine_of(DataType::f32, reduction);
  std::array<float, 256> some;
  for (std::size_t at = 0; at < count; at += some.size()) {
    const std::size_t length = std::min(some.size(), count - at);
    widen(some.data(), static_cast<const std::byte*>(from) + at, type, length);
    combine(into + at, into + at, some.data(), length);
  }
}

void narrow(void* into, const float* from, DataType type, std::size_t count, float by) {
  auto* const bytes = static_cast<std::uint8_t*>(into);
  if (type == DataType::f8e4m3)
    for (std::size_t i = 0; i < count; ++i) bytes[i] = e4m3_of_float(from[i] / by);
  else
    for (std::size_t i = 0; i < count; ++i) bytes[i] = e5m2_of_float(from[i] / by);
}

void scale(void* into, const void* from, DataType type, std::size_t count, double by) {
  if (const Scale directly = scale_of(type); directly != nullptr) return directly(into, from, count, by);
  std::array<float, 256> some;
  for (std::size_t at = 0; at < count; at += some.size()) {
    const std::size_t length = std::min(some.size(), count - at);
    widen(some.data(), static_cast<const std::byte*>(from) + at, type, length);
    scale_of(DataType::f32)(some.data(), some.data(), length, by);
    narrow(static_cast<std::byte*>(into) + at, some.data(), type, length, 1.0F);
  }
}

}  // namespace fairway::collectives
