#include <gtest/gtest.h>

#include "engine/tables/regions.h"

namespace fairway::engine {
namespace {

Description sample() {
  Description description;
  description.incarnation = 0x1122334455667788;
  description.region = {7, 9};
  description.size_bytes = 1 << 20;
  description.kind = MemoryKind::pinned;
  description.access = Access::read | Access::atomic;
  description.keys = {{0, "verbs", {{std::byte{1}, std::byte{2}}, {}}}, {3, "tcp", {}}};
  return description;
}

bool same(const Description& a, const Description& b) {
  bool keys = a.keys.size() == b.keys.size();
  for (std::size_t i = 0; keys && i < a.keys.size(); ++i)
    keys = a.keys[i].worker == b.keys[i].worker && a.keys[i].transport == b.keys[i].transport &&
           a.keys[i].keys == b.keys[i].keys;
  return keys && a.incarnation == b.incarnation && a.region == b.region && a.size_bytes == b.size_bytes &&
         a.kind == b.kind && a.access == b.access;
}

TEST(Description, ComesBackAsItWas) {
  const auto back = parse_description(format_description(sample()));
  ASSERT_TRUE(back) << back.status().to_string();
  EXPECT_TRUE(same(*back, sample()));
}

TEST(Description, EveryTruncationIsRefused) {
  const auto bytes = format_description(sample());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = parse_description(std::span(bytes).first(length));
    EXPECT_EQ(cut.status().code(), ErrorCode::invalid_argument) << length;
  }
}

TEST(Description, EveryFlippedBitAndTruncationOfASealedOneIsRefused) {
  const auto sealed = seal_description(format_description(sample()));
  const auto back = parse_description(sealed);
  ASSERT_TRUE(back) << back.status().to_string();
  EXPECT_TRUE(same(*back, sample()));
  for (std::size_t at = 0; at < sealed.size(); ++at) {
    EXPECT_EQ(parse_description(std::span(sealed).first(at)).status().code(), ErrorCode::invalid_argument) << at;
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = sealed;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_EQ(parse_description(bytes).status().code(), ErrorCode::invalid_argument) << at << " bit " << bit;
    }
  }
}

TEST(Description, AnythingBehindItIsRefused) {
  auto bytes = format_description(sample());
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(parse_description(bytes));
}

// A flipped byte may be another honest description; then it says exactly that when written again.
TEST(Description, EveryFlippedByteIsRefusedOrSaysWhatItSays) {
  const auto original = format_description(sample());
  std::size_t refused = 0;
  for (std::size_t at = 0; at < original.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = original;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      const auto parsed = parse_description(bytes);
      if (!parsed)
        ++refused;
      else
        EXPECT_EQ(format_description(*parsed), bytes) << "byte " << at << " bit " << bit;
    }
  EXPECT_GE(refused, 32u);  // the magic alone
}

TEST(Description, CountsBeyondTheBytesAllocateNothingAndAreRefused) {
  auto bytes = format_description(sample());
  bytes[30] = bytes[31] = std::byte{0xff};  // 65535 transports
  EXPECT_FALSE(parse_description(bytes));
  EXPECT_FALSE(parse_description(std::vector<std::byte>(1 << 20)));
}

// What does not fit a record of the smallest link is left out from the end, whole transports at a time.
TEST(Description, OfManyPortsFitsWhatItMayTakeAndStaysOne) {
  Description description = sample();
  description.keys.clear();
  for (const auto& [name, size] : {std::pair{"verbs", 24}, std::pair{"fabric", 40}})
    description.keys.push_back(
        {0, name, std::vector<std::vector<std::byte>>(16, std::vector<std::byte>(static_cast<std::size_t>(size)))});
  const std::size_t whole = format_description(description).size();
  EXPECT_EQ(format_description(description, whole), format_description(description));
  for (const auto& [most, left] :
       {std::pair{whole - 1, 1}, std::pair{std::size_t{600}, 1}, std::pair{std::size_t{352}, 0}}) {
    const auto bytes = format_description(description, most);
    EXPECT_LE(bytes.size(), most);
    const auto parsed = parse_description(bytes);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->keys.size(), static_cast<std::size_t>(left));
    EXPECT_EQ(parsed->size_bytes, description.size_bytes);
  }
}

}  // namespace
}  // namespace fairway::engine
