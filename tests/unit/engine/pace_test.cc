#include <gtest/gtest.h>

#include "engine/links/link.h"

namespace fairway::engine {
namespace {

constexpr double kLeast = 10e9;
constexpr std::uint64_t kPiece = 1'000'000;

// A link that always has two pieces under way, at so many bytes per second: how often it is called slow.
int told(Pace& pace, double rate, Time& now, Time until) {
  int times = 0;
  pace.posted(kLeast, now);
  while (now < until) {
    pace.posted(kLeast, now);
    now += static_cast<Time>(static_cast<double>(kPiece) * 1e9 / rate);
    times += pace.ended(kPiece, now) ? 1 : 0;
  }
  (void)pace.ended(kPiece, now);
  return times;
}

TEST(Pace, ALinkUnderHalfOfItsRateIsToldOnceUntilItRecovers) {
  Pace pace;
  Time now = 0;
  EXPECT_EQ(told(pace, kLeast * 0.4, now, now + Pace::kWindow * 2), 0) << "two windows are a hiccup";
  EXPECT_EQ(told(pace, kLeast * 0.4, now, now + Pace::kWindow * 20), 1);
  EXPECT_EQ(told(pace, kLeast * 0.9, now, now + Pace::kWindow * 3), 0);
  EXPECT_EQ(told(pace, kLeast * 0.4, now, now + Pace::kWindow * 20), 1);
}

TEST(Pace, ALinkThatKeepsHalfOfItsRateIsNeverTold) {
  Pace pace;
  Time now = 0;
  EXPECT_EQ(told(pace, kLeast * 0.55, now, now + Pace::kWindow * 50), 0);
}

TEST(Pace, TimeInWhichNothingWasAskedForIsNotHeldAgainstIt) {
  Pace pace;
  Time now = 0;
  for (int i = 0; i < 100; ++i) {  // one piece at a time, with pauses that make the whole slow
    pace.posted(kLeast, now);
    now += Pace::kWindow / 2;
    EXPECT_FALSE(pace.ended(kPiece, now));
    now += Pace::kWindow;
  }
}

TEST(Pace, OnlyTransfersThatTakeLongAreHeldToTheRate) {
  EXPECT_EQ(Pace::for_transfer(400e9, 1 << 20), 0);  // 2.6 us: latency is most of it
  EXPECT_EQ(Pace::for_transfer(400e9, 64 << 20), 400e9);
  EXPECT_EQ(Pace::for_transfer(1e9, 1 << 20), 1e9);
  EXPECT_EQ(Pace::for_transfer(0, 1 << 30), 0);
}

}  // namespace
}  // namespace fairway::engine
