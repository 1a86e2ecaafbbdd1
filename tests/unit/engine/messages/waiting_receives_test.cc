#include <gtest/gtest.h>

#include "engine/messages/unmatched.h"

namespace fairway::engine {
namespace {

struct ReceivesThatWait : testing::Test {
  std::uint32_t add(std::uint64_t tag, Phase phase = Phase::matching) {
    Request request;
    request.operation = Operation::receive;
    request.tag = tag;
    const std::uint32_t slot = table.acquire();
    table[slot].begin(request, 0);
    table[slot].phase = phase;
    receives.push(slot);
    return slot;
  }
  TransferTable table{32};
  WaitingReceives receives{table};
};

TEST_F(ReceivesThatWait, TheFirstOfATagIsTheOneThatWasSubmittedFirst) {
  const std::uint32_t first = add(7), other = add(8), second = add(7);
  EXPECT_EQ(receives.first(7), first);
  EXPECT_EQ(receives.first(8), other);
  EXPECT_EQ(receives.first(9), kNoSlot);
  EXPECT_TRUE(receives.remove(first));
  EXPECT_FALSE(receives.remove(first));
  EXPECT_EQ(receives.first(7), second);
}

TEST_F(ReceivesThatWait, OneThatWaitsForAnotherTransferHoldsUpThoseOfItsTag) {
  const std::uint32_t waits = add(7, Phase::waiting);
  (void)add(7);
  EXPECT_EQ(receives.ready(7), kNoSlot);
  EXPECT_EQ(receives.first(7), waits);
  table[waits].phase = Phase::matching;
  EXPECT_EQ(receives.ready(7), waits);
}

TEST_F(ReceivesThatWait, AFewMayBeToldAndNoneAfterManyShortMessages) {
  std::vector<std::uint32_t> told;
  for (; receives.may_tell(); receives.tell(table[told.back()])) told.push_back(add(told.size()));
  EXPECT_EQ(told.size(), kMostTold);
  EXPECT_TRUE(receives.untell(table[told[0]]));
  EXPECT_FALSE(receives.untell(table[told[0]]));
  EXPECT_TRUE(receives.may_tell());
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(receives.may_tell());
    receives.matched(true);
  }
  EXPECT_FALSE(receives.may_tell());
  receives.matched(true);
  EXPECT_FALSE(receives.may_tell());
  receives.matched(false);
  EXPECT_TRUE(receives.may_tell());
}

}  // namespace
}  // namespace fairway::engine
