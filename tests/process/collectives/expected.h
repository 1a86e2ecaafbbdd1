#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/halves.h"

// Values whose sums and products are exact in every type, so that results have one right answer whatever the order.
namespace fairway {

inline constexpr DataType kAllTypes[] = {DataType::i8,  DataType::u8,   DataType::i16, DataType::u16,
                                         DataType::i32, DataType::u32,  DataType::i64, DataType::u64,
                                         DataType::f16, DataType::bf16, DataType::f32, DataType::f64};

// Writes `value` as element `at`.
inline void put(std::byte* memory, std::size_t at, DataType type, double value) {
  const auto store = [&](auto typed) { std::memcpy(memory + at * sizeof typed, &typed, sizeof typed); };
  switch (type) {
    case DataType::i8: return store(static_cast<std::int8_t>(value));
    case DataType::u8: return store(static_cast<std::uint8_t>(value));
    case DataType::i16: return store(static_cast<std::int16_t>(value));
    case DataType::u16: return store(static_cast<std::uint16_t>(value));
    case DataType::i32: return store(static_cast<std::int32_t>(value));
    case DataType::u32: return store(static_cast<std::uint32_t>(value));
    case DataType::i64: return store(static_cast<std::int64_t>(value));
    case DataType::u64: return store(static_cast<std::uint64_t>(value));
    case DataType::f16: return store(collectives::half_of_float(static_cast<float>(value)));
    case DataType::bf16: return store(collectives::bfloat_of_float(static_cast<float>(value)));
    case DataType::f32: return store(static_cast<float>(value));
    case DataType::f64: return store(value);
    case DataType::f8e4m3: return store(collectives::e4m3_of_float(static_cast<float>(value)));
    case DataType::f8e5m2: return store(collectives::e5m2_of_float(static_cast<float>(value)));
  }
}

inline double get(const std::byte* memory, std::size_t at, DataType type) {
  const auto load = [&](auto typed) {
    std::memcpy(&typed, memory + at * sizeof typed, sizeof typed);
    return typed;
  };
  switch (type) {
    case DataType::i8: return load(std::int8_t{});
    case DataType::u8: return load(std::uint8_t{});
    case DataType::i16: return load(std::int16_t{});
    case DataType::u16: return load(std::uint16_t{});
    case DataType::i32: return load(std::int32_t{});
    case DataType::u32: return load(std::uint32_t{});
    case DataType::i64: return static_cast<double>(load(std::int64_t{}));
    case DataType::u64: return static_cast<double>(load(std::uint64_t{}));
    case DataType::f16: return collectives::float_of_half(load(std::uint16_t{}));
    case DataType::bf16: return collectives::float_of_bfloat(load(std::uint16_t{}));
    case DataType::f32: return load(float{});
    case DataType::f64: return load(double{});
    case DataType::f8e4m3: return collectives::float_of_e4m3(load(std::uint8_t{}));
    case DataType::f8e5m2: return collectives::float_of_e5m2(load(std::uint8_t{}));
  }
  return NAN;
}

// Of a premul_sum: exact in every type, and their sums, too.
inline double factor_of(int rank) {
  return rank % 4 - 1;
}

// Element `at` of block `block` of a rank's input. At most 17 ranks: sums stay below 127, products below 3 * 2^5.
inline double given(int rank, int block, std::size_t at, Reduction reduction) {
  const auto mixed = static_cast<unsigned>(rank * 7 + block * 3 + static_cast<int>(at % 97));
  if (reduction == Reduction::product) return rank % 4 == 0 ? 1 + mixed % 2 : 1;
  return mixed % 8;
}

inline double reduced(int size, int block, std::size_t at, Reduction reduction, DataType type) {
  double value = given(0, block, at, reduction);
  if (reduction == Reduction::premul_sum) value *= factor_of(0);
  for (int rank = 1; rank < size; ++rank) {
    const double next = given(rank, block, at, reduction);
    switch (reduction) {
      case Reduction::product: value *= next; break;
      case Reduction::min: value = std::min(value, next); break;
      case Reduction::max: value = std::max(value, next); break;
      case Reduction::sum:
      case Reduction::average:
      case Reduction::custom: value += next; break;
      case Reduction::premul_sum: value += next * factor_of(rank); break;
    }
  }
  if (reduction == Reduction::average)
    value /= size;
  else if (type < DataType::f8e4m3)
    return value;
  switch (type) {
    case DataType::f64: return value;
    case DataType::f32: return static_cast<float>(value);
    case DataType::f16: return collectives::float_of_half(collectives::half_of_float(static_cast<float>(value)));
    case DataType::bf16: return collectives::float_of_bfloat(collectives::bfloat_of_float(static_cast<float>(value)));
    case DataType::f8e4m3: return collectives::float_of_e4m3(collectives::e4m3_of_float(static_cast<float>(value)));
    case DataType::f8e5m2: return collectives::float_of_e5m2(collectives::e5m2_of_float(static_cast<float>(value)));
    default: return std::trunc(value);
  }
}

}  // namespace fairway
