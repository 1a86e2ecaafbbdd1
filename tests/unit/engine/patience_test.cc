#include "engine/patience.h"

#include <gtest/gtest.h>

namespace fairway::engine {
namespace {

constexpr Time kBound = 2 * kSecond;
constexpr Time kBeat = kBound / 4;

TEST(Patience, AgainstAPeerWithThreadsItIsTheClock) {
  Patience patience(false, kSecond);
  const Time since = patience.start(5 * kSecond);
  EXPECT_FALSE(patience.over(since, kBound, 7 * kSecond - 1));
  EXPECT_EQ(patience.look_at(since, kBound, 6 * kSecond), 7 * kSecond);
  EXPECT_TRUE(patience.over(since, kBound, 7 * kSecond));
  patience.heard(0, 6 * kSecond);  // its heartbeats are control's alone
  EXPECT_TRUE(patience.over(since, kBound, 7 * kSecond));
}

TEST(Patience, APeerThatComputesIsWaitedForHoweverLong) {
  Patience patience(true, 0);
  const Time since = patience.start(0);
  for (Time now = 0; now < 1000 * kSecond; now += kBeat) patience.heard(7, now);
  EXPECT_FALSE(patience.over(since, kBound, 1000 * kSecond));
}

TEST(Patience, OneThatMakesStepsIsNot) {
  Patience patience(true, 0);
  Time now = 0;
  std::uint64_t steps = 0;
  const auto beats = [&](int count, bool acts) {
    for (int i = 0; i < count; ++i) patience.heard(acts ? ++steps : steps, now += kBeat);
  };
  beats(10, true);
  const Time since = patience.start(now + kBeat / 2);
  beats(20, false);
  beats(4, true);
  EXPECT_FALSE(patience.over(since, kBound, now)) << "half an interval of these was before";
  beats(1, true);
  EXPECT_TRUE(patience.over(since, kBound, now));
}

TEST(Patience, WhatBeginsLaterNeverBeganEarlier) {
  Patience patience(true, 0);
  Time last = 0;
  for (int i = 1; i < 100; ++i) {
    const Time now = static_cast<Time>(i) * kBeat / 3;
    if (i % 3 == 0) patience.heard(i % 2 == 0 ? 1 : 2, now);
    EXPECT_GE(patience.start(now), last);
    last = patience.start(now);
    EXPECT_GE(last, patience.passed(now));
  }
}

TEST(Patience, TheTimeThatThisSideWasAwayDoesNotCount) {
  Patience threads(false, 0), caller(true, 0);
  const Time since = threads.start(kSecond), other = caller.start(kSecond);
  threads.was_away(kSecond, 9 * kSecond);
  caller.was_away(kSecond, 9 * kSecond);
  for (Time at = kSecond; at < 9 * kSecond; at += kBeat) caller.heard(at, at);  // which are read only now
  EXPECT_FALSE(threads.over(since, kBound, 10 * kSecond));
  EXPECT_TRUE(threads.over(since, kBound, 11 * kSecond));
  EXPECT_FALSE(caller.over(other, kBound, 10 * kSecond));
}

TEST(Patience, WhatDidNotBeginIsNeverOver) {
  Patience patience(false, 0);
  EXPECT_FALSE(patience.over(kNever, kBound, 1000 * kSecond));
  EXPECT_EQ(patience.look_at(kNever, kBound, 5), kNever);
}

}  // namespace
}  // namespace fairway::engine
