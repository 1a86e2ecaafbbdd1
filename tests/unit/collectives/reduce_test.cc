#include "collectives/host/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/halves.h"

namespace fairway::collectives {
namespace {

constexpr DataType kTypes[] = {DataType::i8,  DataType::u8,   DataType::i16, DataType::u16,
                               DataType::i32, DataType::u32,  DataType::i64, DataType::u64,
                               DataType::f16, DataType::bf16, DataType::f32, DataType::f64};
constexpr Reduction kReductions[] = {Reduction::sum, Reduction::product, Reduction::min, Reduction::max};

template <class T>
T one(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::product: return static_cast<T>(a * b);
    case Reduction::min: return b < a ? b : a;
    case Reduction::max: return a < b ? b : a;
    default: return static_cast<T>(a + b);
  }
}

// Element i, computed apart from the loops: integers by __int128, which no product of two leaves.
template <class T>
void expect_combined(Reduction reduction, const std::byte* a, const std::byte* b, const std::byte* got) {
  T x, y, z;
  std::memcpy(&x, a, sizeof(T));
  std::memcpy(&y, b, sizeof(T));
  std::memcpy(&z, got, sizeof(T));
  if constexpr (std::is_integral_v<T>) {
    __extension__ typedef unsigned __int128 Wide;
    const bool order = reduction == Reduction::min || reduction == Reduction::max;
    const T want =
        order ? one(reduction, x, y) : static_cast<T>(one<Wide>(reduction, static_cast<Wide>(x), static_cast<Wide>(y)));
    ASSERT_EQ(z, want);
  } else {
    ASSERT_EQ(z, one(reduction, x, y));
  }
}

void expect_combined(DataType type, Reduction reduction, const std::byte* a, const std::byte* b, const std::byte* got) {
  const auto narrow = [&](float (*widen)(std::uint16_t), std::uint16_t (*shorten)(float)) {
    std::uint16_t x, y, z;
    std::memcpy(&x, a, 2);
    std::memcpy(&y, b, 2);
    std::memcpy(&z, got, 2);
    ASSERT_EQ(widen(z), widen(shorten(one(reduction, widen(x), widen(y)))));
  };
  switch (type) {
    case DataType::i8: return expect_combined<std::int8_t>(reduction, a, b, got);
    case DataType::u8: return expect_combined<std::uint8_t>(reduction, a, b, got);
    case DataType::i16: return expect_combined<std::int16_t>(reduction, a, b, got);
    case DataType::u16: return expect_combined<std::uint16_t>(reduction, a, b, got);
    case DataType::i32: return expect_combined<std::int32_t>(reduction, a, b, got);
    case DataType::u32: return expect_combined<std::uint32_t>(reduction, a, b, got);
    case DataType::i64: return expect_combined<std::int64_t>(reduction, a, b, got);
    case DataType::u64: return expect_combined<std::uint64_t>(reduction, a, b, got);
    case DataType::f16: return narrow(float_of_half, half_of_float);
    case DataType::bf16: return narrow(float_of_bfloat, bfloat_of_float);
    case DataType::f32: return expect_combined<float>(reduction, a, b, got);
    case DataType::f64: return expect_combined<double>(reduction, a, b, got);
    case DataType::f8e4m3:
    case DataType::f8e5m2: break;  // by way of f32
  }
}

// Random bits, but no NaN: of two NaNs either may come out.
void fill(std::vector<std::byte>& bytes, DataType type, std::mt19937_64& random) {
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::size_t width = size_of(type);
  const bool floats = type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64;
  if (!floats) return;
  for (std::size_t i = width - 1; i < bytes.size(); i += width) bytes[i] &= std::byte{0xBF};
}

TEST(Reduce, CombinesEveryTypeAtAnyAlignmentAndLength) {
  std::mt19937_64 random(7);
  for (const DataType type : kTypes) {
    const std::size_t width = size_of(type);
    for (const Reduction reduction : kReductions) {
      for (const Combine combine : {combine_of(type, reduction), plain_combine_of(type, reduction)}) {
        for (const std::size_t count : {0, 1, 7, 8, 9, 63, 200}) {
          const std::size_t shift = random() % 9;
          std::vector<std::byte> a(count * width), b(count * width), out(count * width + shift + 1, std::byte{0x5A});
          fill(a, type, random);
          fill(b, type, random);
          combine(out.data() + shift, a.data(), b.data(), count);
          for (std::size_t i = 0; i < count; ++i)
            expect_combined(type, reduction, a.data() + i * width, b.data() + i * width,
                            out.data() + shift + i * width);
          ASSERT_EQ(out.back(), std::byte{0x5A});
          auto in_place = a;  // into is the first operand
          combine(in_place.data(), in_place.data(), b.data(), count);
          ASSERT_TRUE(std::equal(in_place.begin(), in_place.end(), out.begin() + shift));
          in_place = b;  // or the second
          combine(in_place.data(), a.data(), in_place.data(), count);
          ASSERT_TRUE(std::equal(in_place.begin(), in_place.end(), out.begin() + shift));
        }
      }
    }
  }
}

TEST(Reduce, ConvertsEveryHalf) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const std::uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const float value = float_of_half(half);
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_TRUE(std::isnan(float_of_half(half_of_float(value))));
      continue;
    }
    double want =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    if (exponent == 31) want = std::numeric_limits<double>::infinity();
    ASSERT_EQ(value, (bits & 0x8000) != 0 ? -want : want);
    ASSERT_EQ(half_of_float(value), half);
  }
}

TEST(Reduce, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(half_of_float(2049.0F), half_of_float(2048.0F));  // between 2048 and 2050
  EXPECT_EQ(half_of_float(2051.0F), half_of_float(2052.0F));
  EXPECT_EQ(half_of_float(65520.0F), half_of_float(std::numeric_limits<float>::infinity()));
  EXPECT_EQ(half_of_float(65519.0F), half_of_float(65504.0F));
  EXPECT_EQ(bfloat_of_float(257.0F), bfloat_of_float(256.0F));  // between 256 and 258
  EXPECT_EQ(bfloat_of_float(259.0F), bfloat_of_float(260.0F));
  EXPECT_TRUE(std::isnan(float_of_bfloat(bfloat_of_float(std::numeric_limits<float>::quiet_NaN()))));
}

// Every value of one byte, and what lies at and beside the middle between two of them.
void expect_bytes(float (*widen)(std::uint8_t), std::uint8_t (*narrow)(float), std::uint8_t largest) {
  for (unsigned code = 0; code < largest; ++code) {
    const auto low = static_cast<std::uint8_t>(code), high = static_cast<std::uint8_t>(code + 1);
    const float a = widen(low), b = widen(high), middle = (a + b) / 2;
    ASSERT_LT(a, b);
    for (const int sign : {1, -1}) {
      const auto with_sign = [sign](std::uint8_t byte) {
        return static_cast<std::uint8_t>(sign < 0 ? byte | 0x80 : byte);
      };
      const auto of = [&](float value) { return narrow(static_cast<float>(sign) * value); };
      ASSERT_EQ(widen(with_sign(low)), static_cast<float>(sign) * a);
      ASSERT_EQ(of(a), with_sign(low)) << code;
      ASSERT_EQ(of(middle), with_sign(code % 2 == 0 ? low : high)) << code;
      ASSERT_EQ(of(std::nextafter(middle, 0.0F)), with_sign(low)) << code;
      ASSERT_EQ(of(std::nextafter(middle, 1e9F)), with_sign(high)) << code;
    }
  }
  EXPECT_EQ(narrow(1e9F), largest);
  EXPECT_EQ(narrow(-std::numeric_limits<float>::infinity()), largest | 0x80);
  EXPECT_EQ(narrow(0.0F), 0);
  EXPECT_EQ(narrow(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_TRUE(std::isnan(widen(narrow(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Reduce, RoundsBytesToTheNearestAndToTheLargest) {
  expect_bytes(float_of_e4m3, e4m3_of_float, 0x7E);
  expect_bytes(float_of_e5m2, e5m2_of_float, 0x7B);
  EXPECT_EQ(float_of_e4m3(0x7E), 448.0F);
  EXPECT_EQ(float_of_e4m3(0x01), 0x1p-9F);
  EXPECT_TRUE(std::isnan(float_of_e4m3(0x7F)));
  EXPECT_EQ(float_of_e5m2(0x7B), 57344.0F);
  EXPECT_EQ(float_of_e5m2(0x01), 0x1p-16F);
  std::vector<float> wide{1, 2};
  const std::vector<std::uint8_t> more{e5m2_of_float(3), e5m2_of_float(-7)};
  combine_wide(wide.data(), more.data(), DataType::f8e5m2, Reduction::sum, 2);
  EXPECT_EQ(wide, (std::vector<float>{4, -5}));
}

TEST(Reduce, DividesForAverages) {
  std::vector<std::int32_t> ints{7, -7, 6};
  divide(ints.data(), DataType::i32, ints.size(), 2);
  EXPECT_EQ(ints, (std::vector<std::int32_t>{3, -3, 3}));
  std::vector<float> floats{7, -7};
  divide(floats.data(), DataType::f32, floats.size(), 2);
  EXPECT_EQ(floats, (std::vector<float>{3.5F, -3.5F}));
  std::vector<std::uint16_t> halves{half_of_float(7)};
  divide(halves.data(), DataType::f16, 1, 2);
  EXPECT_EQ(float_of_half(halves[0]), 3.5F);
}

// One element times `by`, computed apart from the loops.
double product(DataType type, const std::byte* at, double by) {
  const auto load = [at](auto typed) {
    std::memcpy(&typed, at, sizeof typed);
    return typed;
  };
  const auto factor = static_cast<float>(by);
  switch (type) {
    case DataType::f16: return float_of_half(half_of_float(float_of_half(load(std::uint16_t{})) * factor));
    case DataType::bf16: return float_of_bfloat(bfloat_of_float(float_of_bfloat(load(std::uint16_t{})) * factor));
    case DataType::f32: return load(float{}) * factor;
    case DataType::f8e4m3: return float_of_e4m3(e4m3_of_float(float_of_e4m3(load(std::uint8_t{})) * factor));
    case DataType::f8e5m2: return float_of_e5m2(e5m2_of_float(float_of_e5m2(load(std::uint8_t{})) * factor));
    default: return load(double{}) * by;
  }
}

double number(DataType type, const std::byte* at) {
  return product(type, at, 1);
}

TEST(Reduce, MultipliesEveryFloatingPointTypeAndRoundsOnce) {
  std::mt19937_64 random(11);
  for (const DataType type :
       {DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::f8e4m3, DataType::f8e5m2})
    for (const double by : {1.0, 0.0, -2.5, 1.0 / 3, 1e-3})
      for (const std::size_t count : {0, 1, 7, 8, 9, 63, 300, 600}) {
        const std::size_t width = size_of(type), shift = random() % 9;
        std::vector<std::byte> from(count * width), out(count * width + shift + 1, std::byte{0x5A});
        fill(from, type, random);
        if (width == 1)
          for (std::byte& byte : from) byte &= std::byte{0xB7};  // no NaN
        const auto compare = [&](const std::byte* got) {
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(number(type, got + i * width), product(type, from.data() + i * width, by))
                << to_string(type) << " by " << by << ", element " << i;
        };
        scale(out.data() + shift, from.data(), type, count, by);
        compare(out.data() + shift);
        ASSERT_EQ(out.back(), std::byte{0x5A});
        auto in_place = from;
        scale(in_place.data(), in_place.data(), type, count, by);
        compare(in_place.data());
        if (width == 1) continue;
        plain_scale_of(type)(out.data() + shift, from.data(), count, by);
        compare(out.data() + shift);
      }
  for (const DataType type : kTypes)
    EXPECT_EQ(scale_of(type) == nullptr, type < DataType::f16) << to_string(type) << ": integers are not multiplied";
}

TEST(Reduce, MultipliesByWhatIsNoNumberAsFloatingPointDoes) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::vector<float> from{0, 1, -2};
  std::vector<float> to(3);
  scale(to.data(), from.data(), DataType::f32, 3, kInfinite);
  EXPECT_TRUE(std::isnan(to[0]));
  EXPECT_EQ(to[1], static_cast<float>(kInfinite));
  EXPECT_EQ(to[2], -static_cast<float>(kInfinite));
  scale(to.data(), from.data(), DataType::f32, 3, NAN);
  for (const float each : to) EXPECT_TRUE(std::isnan(each));
  const std::uint8_t one = e4m3_of_float(1);
  std::uint8_t got = 0;
  scale(&got, &one, DataType::f8e4m3, 1, kInfinite);
  EXPECT_EQ(float_of_e4m3(got), 448.0F) << "the largest number in place of larger ones";
  scale(&got, &one, DataType::f8e4m3, 1, NAN);
  EXPECT_TRUE(std::isnan(float_of_e4m3(got)));
}

}  // namespace
}  // namespace fairway::collectives
