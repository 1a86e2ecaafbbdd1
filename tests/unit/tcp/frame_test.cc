#include "transport/tcp/frame.h"

#include <array>
#include <span>

#include <gtest/gtest.h>

namespace fairway::transport::tcp {
namespace {

Header example(FrameType type) {
  Header header;
  header.type = type;
  header.token = 0x1234'5678;
  header.region = {7, 3};
  header.offset = 0x0102'0304'0506;
  header.length = type == FrameType::fetch_add ? 8 : 4096;
  header.immediate = type == FrameType::done ? 0 : 0xcafe'f00d;
  return header;
}

TEST(TcpFrame, WhatIsEncodedIsDecoded) {
  for (const FrameType type : {FrameType::write, FrameType::read, FrameType::message, FrameType::fetch_add,
                               FrameType::done, FrameType::data, FrameType::taken}) {
    Header header = example(type);
    header.acks = type == FrameType::message ? 0 : Header::kMostAcks;
    if (type == FrameType::write) header.flags = Header::kImmediate;
    const auto again = decode(encode(header));
    ASSERT_TRUE(again) << again.status().to_string();
    EXPECT_EQ(encode(*again), encode(header));
  }
}

// As docs/wire-format-tcp.md says it, a bit at a time.
std::uint16_t sum_by_the_book(std::span<const std::byte> header) {
  std::uint32_t sum = 0xffff;
  for (std::size_t at = 0; at < header.size(); ++at) {
    if (at == 2 || at == 3) continue;
    sum ^= std::to_integer<std::uint32_t>(header[at]) << 8;
    for (int bit = 0; bit < 8; ++bit) sum = (sum << 1 ^ ((sum & 0x8000) != 0 ? 0x1021u : 0u)) & 0xffff;
  }
  return static_cast<std::uint16_t>(sum);
}

TEST(TcpFrame, TheSumIsTheOneOfTheWireFormatForEveryBitOfTheHeader) {
  std::array<std::byte, kHeaderBytes> header{};
  EXPECT_EQ(sum_of(header), sum_by_the_book(header));
  for (std::size_t bit = 0; bit < header.size() * 8; ++bit) {
    header[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    ASSERT_EQ(sum_of(header), sum_by_the_book(header)) << bit;
    ASSERT_EQ(sum_by_tables(header), sum_by_the_book(header)) << bit;
    if (bit % 3 == 0) header[(bit * 7 + 13) % header.size()] ^= static_cast<std::byte>(bit);  // and of mixed ones
  }
}

TEST(TcpFrame, AHeaderWithUpToThreeBitsFlippedIsRefused) {
  const auto right = encode(example(FrameType::write));
  const std::size_t bits = right.size() * 8;
  const auto flip = [](auto& bytes, std::size_t bit) { bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8); };
  const auto refused = [&](const auto& bytes) {
    const auto header = decode(bytes);
    return !header && header.status().code() == ErrorCode::link_failed;
  };
  for (std::size_t a = 0; a < bits; ++a) {
    auto one = right;
    flip(one, a);
    ASSERT_TRUE(refused(one)) << a;
    for (std::size_t b = a + 1; b < bits; ++b) {
      auto two = one;
      flip(two, b);
      ASSERT_TRUE(refused(two)) << a << ' ' << b;
      for (std::size_t c = b + 1 + (a + b) % 41; c < bits; c += 41) {
        auto three = two;
        flip(three, c);
        ASSERT_TRUE(refused(three)) << a << ' ' << b << ' ' << c;
      }
    }
  }
}

}  // namespace
}  // namespace fairway::transport::tcp
