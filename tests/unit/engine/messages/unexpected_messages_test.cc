#include <gtest/gtest.h>

#include "engine/messages/unmatched.h"

namespace fairway::engine {
namespace {

constexpr std::uint32_t kLimit = 1024;

UnexpectedMessage message(std::uint64_t tag, std::uint32_t sender) {
  UnexpectedMessage made;
  made.tag = tag;
  made.sender = {sender, 1};
  return made;
}

TEST(UnexpectedOnes, AreTakenInTheOrderOfTheirNumbers) {
  UnexpectedMessages all(kLimit);
  EXPECT_TRUE(all.add(1, message(8, 1)));
  EXPECT_FALSE(all.advance());
  EXPECT_EQ(all.find(8), nullptr);
  EXPECT_TRUE(all.add(0, message(7, 0)));
  EXPECT_EQ(all.advance(), 7u);
  EXPECT_EQ(all.advance(), 8u);
  EXPECT_FALSE(all.advance());
  EXPECT_EQ(all.taken(), 2u);
}

TEST(UnexpectedOnes, OneInItsTurnTakesItsPlaceAtOnceUnlessAnotherWaitsBehindIt) {
  UnexpectedMessages all(kLimit);
  UnexpectedMessage first = message(7, 0), second = message(7, 1), direct = message(9, 3);
  direct.receiver = {4, 1};
  direct.number = 77;
  EXPECT_FALSE(all.add_in_turn(1, second)) << "it is not its turn";
  EXPECT_TRUE(all.add_in_turn(0, first));
  ASSERT_NE(all.find(7), nullptr);
  EXPECT_EQ(all.find(7)->sender, (TransferId{0, 1}));
  EXPECT_EQ(all.taken(), 1u);
  EXPECT_TRUE(all.add(2, message(8, 2)));
  EXPECT_FALSE(all.add_in_turn(1, second)) << "who else would let the one behind it advance?";
  EXPECT_TRUE(all.add(1, second));
  EXPECT_EQ(all.advance(), 7u);
  EXPECT_EQ(all.advance(), 8u);
  EXPECT_TRUE(all.add_in_turn(3, direct));
  EXPECT_TRUE(all.bytes_came(77));
}

TEST(UnexpectedOnes, OfATagAreTakenFirstComeFirstServed) {
  UnexpectedMessages all(kLimit);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(all.add(i, message(i % 2, i)));
  while (all.advance()) {
  }
  for (const std::uint32_t sender : {1u, 3u}) {
    ASSERT_NE(all.find(1), nullptr);
    EXPECT_EQ(all.take(all.find(1)).sender, (TransferId{sender, 1}));
  }
  EXPECT_EQ(all.find(1), nullptr);
  EXPECT_NE(all.find(0), nullptr);
}

TEST(UnexpectedOnes, OnlyTheNextOfATagOfWhichNoneWaitsNeedsNoPlace) {
  UnexpectedMessages all(kLimit);
  EXPECT_TRUE(all.is_first(0, 7));
  EXPECT_FALSE(all.is_first(1, 7));  // before its turn
  EXPECT_TRUE(all.add(0, message(7, 0)));
  EXPECT_FALSE(all.is_first(0, 8));  // one is there that has not been taken
  EXPECT_TRUE(all.advance());
  EXPECT_FALSE(all.is_first(1, 7));  // one of that tag waits
  EXPECT_TRUE(all.is_first(1, 8));
  all.pass();
  EXPECT_TRUE(all.is_first(2, 8));
  EXPECT_EQ(all.taken(), 2u);
}

TEST(UnexpectedOnes, ANumberTwiceOrFarAheadIsRefused) {
  UnexpectedMessages all(kLimit);
  EXPECT_TRUE(all.add(5, message(1, 0)));
  EXPECT_FALSE(all.add(5, message(1, 1)));
  EXPECT_FALSE(all.add(kLimit / 64 + 1, message(1, 2)));
  EXPECT_TRUE(all.add(kLimit / 64, message(1, 3)));
}

TEST(UnexpectedOnes, AreChargedUntilTheyAreMatched) {
  UnexpectedMessages all(2 * (64 + 100));
  EXPECT_TRUE(all.charge(100, true));
  EXPECT_TRUE(all.charge(100, true));
  EXPECT_FALSE(all.charge(100, false));
  all.give_back(unexpected_cost(100, false));
  all.give_back(unexpected_cost(100, true));
  EXPECT_TRUE(all.charge(1000, false));  // the bytes of an announced one are nobody's yet
}

TEST(UnexpectedOnes, KnowThatBytesCameBeforeTheirTurnAndAfterIt) {
  UnexpectedMessages all(kLimit);
  for (std::uint32_t i = 0; i < 2; ++i) {
    UnexpectedMessage direct = message(7, i);
    direct.receiver = {9, 1};
    direct.number = 20 + i;
    EXPECT_TRUE(all.add(1 - i, std::move(direct)));
    EXPECT_TRUE(all.bytes_came(20 + i));
  }
  EXPECT_FALSE(all.bytes_came(22));
  while (all.advance()) {
  }
  while (const UnexpectedMessage* const found = all.find(7)) EXPECT_TRUE(all.take(found).came);
  EXPECT_FALSE(all.bytes_came(20));
}

}  // namespace
}  // namespace fairway::engine
