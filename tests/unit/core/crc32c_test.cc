#include "core/crc32c.h"

#include <array>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> noise(std::size_t size) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// By the definition, a bit at a time.
std::uint32_t by_definition(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Crc32c, GivesTheVectorsOfRfc3720) {
  std::array<std::byte, 32> data{};
  EXPECT_EQ(crc32c(0, data), 0x8a9136aau);
  data.fill(std::byte{0xff});
  EXPECT_EQ(crc32c(0, data), 0x62a8ab43u);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(0, data), 0x46dd794eu);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(0, data), 0x113fdb5cu);
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(0, {}), 0u);
}

TEST(Crc32c, EveryMethodFollowsTheDefinitionAtEveryLengthAndAlignment) {
  const auto data = noise(14000);
  const std::span<const std::byte> all(data);
  for (std::size_t size = 0; size < 1700; ++size) {
    const auto piece = all.subspan(size % 17, size);
    const std::uint32_t expected = by_definition(piece);
    ASSERT_EQ(crc32c(0, piece), expected) << size << " bytes with " << crc32c_method();
    ASSERT_EQ(crc32c_portable(0, piece), expected) << size << " bytes";
  }
  for (const std::size_t size : {12287u, 12288u, 12289u, 13056u, 13900u})
    ASSERT_EQ(crc32c(0, all.subspan(3, size)), by_definition(all.subspan(3, size))) << size;
}

TEST(Crc32c, PiecesGiveTheChecksumOfTheWhole) {
  const auto data = noise(20000);
  const std::span<const std::byte> all(data);
  const std::uint32_t whole = crc32c(0, all);
  for (std::size_t cut = 0; cut <= data.size(); cut += 379) {
    ASSERT_EQ(crc32c(crc32c(0, all.first(cut)), all.subspan(cut)), whole) << cut;
    ASSERT_EQ(crc32c_portable(crc32c(0, all.first(cut)), all.subspan(cut)), whole) << cut;
  }
}

TEST(Crc32c, EverySingleBitFlipShows) {
  auto data = noise(1024);
  const std::uint32_t before = crc32c(0, data);
  for (std::size_t bit = 0; bit < 8 * data.size(); ++bit) {
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    ASSERT_NE(crc32c(0, data), before) << bit;
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

}  // namespace
}  // namespace fairway
