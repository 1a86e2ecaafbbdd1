#include "transport/fabric/frame.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fairway::transport::fabric {
namespace {

std::vector<std::byte> frame_of(const std::vector<std::size_t>& sizes) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<std::byte> message(sizes[i], static_cast<std::byte>(i + 1));
    const std::size_t at = bytes.size();
    bytes.resize(at + kLengthBytes + message.size());
    put_message(bytes.data() + at, message);
  }
  return bytes;
}

std::size_t taken(std::span<const std::byte> bytes, std::uint32_t count, bool& ok) {
  std::size_t messages = 0;
  ok = take_messages(bytes, count, [&](std::span<const std::byte>) { ++messages; });
  return messages;
}

TEST(Frame, SaysTheSameAgain) {
  const std::vector<std::size_t> sizes{3, 0, kMessageBytes};
  const auto bytes = frame_of(sizes);
  std::vector<std::size_t> came;
  EXPECT_TRUE(take_messages(bytes, 3, [&](std::span<const std::byte> message) {
    for (const std::byte each : message) EXPECT_EQ(each, static_cast<std::byte>(came.size() + 1));
    came.push_back(message.size());
  }));
  EXPECT_EQ(came, sizes);
}

TEST(Frame, OfAnyOtherCountOrLengthNothingIsTaken) {
  const auto bytes = frame_of({3, 5});
  bool ok = true;
  for (const std::uint32_t count : {0u, 1u, 3u, kMostJoined + 1, ~0u}) {
    EXPECT_EQ(taken(bytes, count, ok), 0u);
    EXPECT_FALSE(ok) << count;
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(taken(std::span(bytes).first(size), 2, ok), 0u);
    EXPECT_FALSE(ok) << size;
  }
  auto wrong = bytes;
  wrong[0] = std::byte{0xff};
  EXPECT_EQ(taken(wrong, 2, ok), 0u);
  EXPECT_FALSE(ok);
}

}  // namespace
}  // namespace fairway::transport::fabric
