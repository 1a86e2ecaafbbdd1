#include <gtest/gtest.h>

#include "engine/messages/unmatched.h"
#include "engine/tables/record.h"

namespace fairway::engine {
namespace {

struct ToldToASender : testing::Test {
  static std::vector<std::byte> described() {
    Description window;
    window.incarnation = 1;
    window.region = {5, 1};
    window.size_bytes = 2000;
    window.access = Access::write;
    return format_description(window);
  }
  const char* tell(std::uint32_t number, std::uint64_t tag, TransferId receiver, std::uint32_t taken) {
    return told.posted(number, {tag, receiver, taken, {window}});
  }
  const std::vector<std::byte> window = described();
  ToldReceives told;
};

TEST_F(ToldToASender, IsForTheFirstSendOfItsTagThatTheReceiverHadNotTaken) {
  EXPECT_EQ(told.number_send(7), 0u);
  EXPECT_EQ(tell(0, 7, {1, 1}, 0), nullptr);  // that one is for it
  EXPECT_EQ(told.find(7), nullptr);
  EXPECT_EQ(tell(1, 7, {2, 1}, 1), nullptr);
  EXPECT_EQ(told.number_send(8), 1u);
  EXPECT_EQ(told.find(8), nullptr);
  ASSERT_NE(told.find(7), nullptr);
  EXPECT_EQ(told.find(7)->receiver, (TransferId{2, 1}));
  EXPECT_EQ(told.find(7)->window.size_bytes, 2000u);
  EXPECT_EQ(told.number_send(7), 2u);
  told.forget(7);
  EXPECT_EQ(told.find(7), nullptr);
}

TEST_F(ToldToASender, IsIgnoredWhereTheTagsOfSendsSinceThenAreNotKnown) {
  for (int i = 0; i < 17; ++i) (void)told.number_send(3);
  EXPECT_EQ(tell(0, 7, {1, 1}, 0), nullptr);
  EXPECT_EQ(told.find(7), nullptr);
  EXPECT_EQ(tell(1, 7, {1, 1}, 1), nullptr);
  EXPECT_NE(told.find(7), nullptr);
}

TEST_F(ToldToASender, OfSeveralTheLastCountsAlsoWhenItsNumberWrapsAround) {
  EXPECT_EQ(tell(2, 7, {2, 1}, 0), nullptr);
  EXPECT_EQ(tell(~0u, 7, {1, 1}, 0), nullptr);  // told before
  EXPECT_EQ(told.find(7)->receiver, (TransferId{2, 1}));
}

TEST_F(ToldToASender, IsGoneOnceItIsWithdrawnWhicheverRecordComesFirst) {
  EXPECT_EQ(tell(4, 7, {1, 1}, 0), nullptr);
  EXPECT_EQ(told.withdrawn(4, false), nullptr);
  EXPECT_EQ(told.find(7), nullptr);
  EXPECT_EQ(told.withdrawn(5, true), nullptr);
  EXPECT_EQ(tell(5, 7, {1, 1}, 0), nullptr);
  EXPECT_EQ(told.find(7), nullptr);
  EXPECT_EQ(tell(5, 7, {1, 1}, 0), nullptr);  // withdrawn once, not for ever
  EXPECT_NE(told.find(7), nullptr);
}

TEST_F(ToldToASender, NoMoreThanAFewAreKept) {
  for (std::uint32_t i = 0; i < kMostTold + 1; ++i) EXPECT_EQ(tell(i, i, {1, 1}, 0), nullptr);
  EXPECT_NE(told.find(kMostTold - 1), nullptr);
  EXPECT_EQ(told.find(kMostTold), nullptr);
}

TEST_F(ToldToASender, WhatNoReceiverSaysIsRefused) {
  EXPECT_STREQ(told.posted(0, {7, {1, 1}, 0, {}}), "a receive with a malformed window");
  EXPECT_STREQ(tell(0, 7, {1, 1}, 1), "a receive behind sends that were never made");
  for (std::uint32_t i = 0; i < kRecordWindow; ++i) EXPECT_EQ(told.withdrawn(i, true), nullptr);
  EXPECT_STREQ(told.withdrawn(kRecordWindow, true), "more receives withdrawn than it has told of");
}

}  // namespace
}  // namespace fairway::engine
