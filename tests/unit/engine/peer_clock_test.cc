#include <gtest/gtest.h>

#include "engine/links/link_set.h"

namespace fairway::engine {
namespace {

constexpr Time kBound = 2 * kSecond;
constexpr Time kBeat = kBound / 4;

TEST(PeerClock, AgainstAPeerWithThreadsItIsTheClock) {
  PeerClock clock(false, kSecond);
  const Time since = clock.start(5 * kSecond);
  EXPECT_FALSE(clock.over(since, kBound, 7 * kSecond - 1));
  EXPECT_EQ(clock.look_at(since, kBound, 6 * kSecond), 7 * kSecond);
  EXPECT_TRUE(clock.over(since, kBound, 7 * kSecond));
  clock.heard(0, 6 * kSecond);  // its heartbeats are control's alone
  EXPECT_TRUE(clock.over(since, kBound, 7 * kSecond));
}

TEST(PeerClock, APeerThatComputesIsWaitedForHoweverLong) {
  PeerClock clock(true, 0);
  const Time since = clock.start(0);
  for (Time now = 0; now < 1000 * kSecond; now += kBeat) clock.heard(7, now);
  EXPECT_FALSE(clock.over(since, kBound, 1000 * kSecond));
}

TEST(PeerClock, OneThatMakesStepsIsNot) {
  PeerClock clock(true, 0);
  Time now = 0;
  std::uint64_t steps = 0;
  const auto beats = [&](int count, bool acts) {
    for (int i = 0; i < count; ++i) clock.heard(acts ? ++steps : steps, now += kBeat);
  };
  beats(10, true);
  const Time since = clock.start(now + kBeat / 2);
  beats(20, false);
  beats(4, true);
  EXPECT_FALSE(clock.over(since, kBound, now)) << "half an interval of these was before";
  beats(1, true);
  EXPECT_TRUE(clock.over(since, kBound, now));
}

TEST(PeerClock, WhatBeginsLaterNeverBeganEarlier) {
  PeerClock clock(true, 0);
  Time last = 0;
  for (int i = 1; i < 100; ++i) {
    const Time now = static_cast<Time>(i) * kBeat / 3;
    if (i % 3 == 0) clock.heard(i % 2 == 0 ? 1 : 2, now);
    EXPECT_GE(clock.start(now), last);
    last = clock.start(now);
    EXPECT_GE(last, clock.passed(now));
  }
}

TEST(PeerClock, TheTimeThatThisSideWasAwayDoesNotCount) {
  PeerClock threads(false, 0), caller(true, 0);
  const Time since = threads.start(kSecond), other = caller.start(kSecond);
  threads.was_away(kSecond, 9 * kSecond);
  caller.was_away(kSecond, 9 * kSecond);
  for (Time at = kSecond; at < 9 * kSecond; at += kBeat) caller.heard(at, at);  // which are read only now
  EXPECT_FALSE(threads.over(since, kBound, 10 * kSecond));
  EXPECT_TRUE(threads.over(since, kBound, 11 * kSecond));
  EXPECT_FALSE(caller.over(other, kBound, 10 * kSecond));
}

TEST(PeerClock, WhatDidNotBeginIsNeverOver) {
  PeerClock clock(false, 0);
  EXPECT_FALSE(clock.over(kNever, kBound, 1000 * kSecond));
  EXPECT_EQ(clock.look_at(kNever, kBound, 5), kNever);
}

}  // namespace
}  // namespace fairway::engine
