#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/paths/orders.h"
#include "bench/paths/slots.h"
#include "bench/paths/vectors.h"

namespace fairway::tool::bench {
namespace {

TEST(BenchRoof, AllBytesMoveWhereOneCallMovesLess) {
  std::string from = "aaabbbbbcc", to(from.size(), '.');
  std::array<iovec, 4> ours{{{to.data(), 3}, {to.data() + 3, 0}, {to.data() + 3, 5}, {to.data() + 8, 2}}};
  std::array<iovec, 4> theirs{{{from.data(), 3}, {from.data() + 3, 0}, {from.data() + 3, 5}, {from.data() + 8, 2}}};
  int calls = 0;
  const auto four_at_most = [&calls](std::span<iovec> here, std::span<iovec> there) {
    ++calls;
    std::size_t left = 4;
    for (std::size_t i = 0; i < here.size() && left > 0; ++i) {
      const std::size_t part = std::min(left, here[i].iov_len);
      std::copy_n(static_cast<const char*>(there[i].iov_base), part, static_cast<char*>(here[i].iov_base));
      left -= part;
    }
    return static_cast<ssize_t>(4 - left);
  };
  EXPECT_EQ(move_whole(ours, theirs, four_at_most), 0);
  EXPECT_EQ(to, from);
  EXPECT_EQ(calls, 3);
}

TEST(BenchRoof, AFailedCallEndsIt) {
  char byte = 0;
  std::array<iovec, 1> one{{{&byte, 1}}}, other = one;
  EXPECT_EQ(move_whole(one, other, [](auto, auto) { return ssize_t{-1}; }), -1);
}

TEST(BenchRoof, ASlotInUseIsNotGivenAgain) {
  FreeSlots<3> slots;
  const std::size_t a = slots.take(), b = slots.take(), c = slots.take();
  EXPECT_TRUE(slots.none_left());
  slots.give(b);  // the second completes first
  EXPECT_EQ(slots.take(), b);
  EXPECT_TRUE(slots.none_left());
  slots.give(c), slots.give(a);
  EXPECT_NE(slots.take(), slots.take());
}

TEST(BenchOrder, FitsOnlyWhereItsProductDoes) {
  constexpr std::uint64_t kMost = 8ULL << 30U;
  EXPECT_TRUE(fits({.size = 1 << 20, .places = 8 << 10}, kMost));
  EXPECT_FALSE(fits({.size = 1 << 20, .places = (8 << 10) + 1}, kMost));
  EXPECT_FALSE(fits({.size = 1ULL << 32U, .places = 1ULL << 32U}, kMost)) << "their product is 0 in 64 bits";
  EXPECT_FALSE(fits({.size = 8, .places = 0}, kMost));
  EXPECT_TRUE(fits({.size = 0, .places = 5}, kMost));
}

}  // namespace
}  // namespace fairway::tool::bench
