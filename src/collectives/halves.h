#pragma once

#include <bit>
#include <cstdint>

// 16-bit floating point to and from f32, without branches, so that loops over them vectorise.
namespace fairway::collectives {

// IEEE 754 binary16. The subnormals go through a float whose exponent is set by hand, as in Maratyszcza/FP16.
inline float float_of_half(std::uint16_t half) {
  const std::uint32_t word = std::uint32_t{half} << 16, shifted = word + word;
  const float normal = std::bit_cast<float>((shifted >> 4) + (0xE0U << 23)) * 0x1p-112F;
  const float subnormal = std::bit_cast<float>((shifted >> 17) | (126U << 23)) - 0.5F;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(shifted < (1U << 27) ? subnormal : normal);
  return std::bit_cast<float>((word & 0x80000000U) | bits);
}

// Rounds to the nearest, ties to even.
inline std::uint16_t half_of_float(float value) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value), shifted = word + word;
  const float magnitude = std::bit_cast<float>(word & 0x7FFFFFFFU);
  const std::uint32_t exponent = shifted & 0xFF000000U, bias = exponent < 0x71000000U ? 0x71000000U : exponent;
  const float rounded = std::bit_cast<float>((bias >> 1) + 0x07800000U) + (magnitude * 0x1p+112F) * 0x1p-110F;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(rounded);
  const std::uint32_t body = ((bits >> 13) & 0x7C00U) + (bits & 0x0FFFU);
  return static_cast<std::uint16_t>(((word & 0x80000000U) >> 16) | (shifted > 0xFF000000U ? 0x7E00U : body));
}

inline float float_of_bfloat(std::uint16_t bfloat) {
  return std::bit_cast<float>(std::uint32_t{bfloat} << 16);
}

// Rounds to the nearest, ties to even; a NaN stays one.
inline std::uint16_t bfloat_of_float(float value) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + 0x7FFFU + ((word >> 16) & 1U)) >> 16;
  const bool is_nan = (word & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<std::uint16_t>(is_nan ? (word >> 16) | 0x40U : rounded);
}

// 8-bit floating point as in "OCP 8-bit floating point specification", 2023: e4m3 has no infinities, and the largest
// number is 448; e5m2 is the upper byte of binary16, and the largest number is 57344.
inline float float_of_e5m2(std::uint8_t value) {
  return float_of_half(static_cast<std::uint16_t>(value << 8));
}
// As binary16 it is the same number times 2^-8, but for the NaN.
inline float float_of_e4m3(std::uint8_t value) {
  const std::uint32_t magnitude = value & 0x7FU;
  const std::uint32_t bits = magnitude == 0x7FU ? 0x7E00U : magnitude << 7;
  return float_of_half(static_cast<std::uint16_t>(bits | (value & 0x80U) << 8)) * 256.0F;
}

// Rounds to the nearest, ties to even; what is larger than the largest number becomes that, and a NaN stays one.
template <int kMantissa, int kBias, std::uint32_t kLargest>
std::uint8_t narrow_float(float value) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value), magnitude = word & 0x7FFFFFFFU;
  constexpr int kDropped = 23 - kMantissa;
  const std::uint32_t rounded = magnitude + ((1U << (kDropped - 1)) - 1) + ((magnitude >> kDropped) & 1U);
  const std::uint32_t normal = (rounded >> kDropped) - ((127U - kBias) << kMantissa);
  // Below the smallest normal number: as many of its smallest parts. The sum's last bit is worth one of them.
  constexpr float kAdd = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - kBias - kMantissa + 23) << 23);
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kAdd) - std::bit_cast<std::uint32_t>(kAdd);
  const bool is_small = magnitude < static_cast<std::uint32_t>(127 + 1 - kBias) << 23;
  std::uint32_t code = is_small ? small : normal > kLargest ? kLargest : normal;
  if (magnitude > 0x7F800000U) code = 0x7F;
  return static_cast<std::uint8_t>(code | (word >> 24 & 0x80U));
}
inline std::uint8_t e4m3_of_float(float value) {
  return narrow_float<3, 7, 0x7E>(value);
}
inline std::uint8_t e5m2_of_float(float value) {
  return narrow_float<2, 15, 0x7B>(value);
}

}  // namespace fairway::collectives
