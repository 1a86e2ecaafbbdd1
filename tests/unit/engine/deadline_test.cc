#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "two_engines.h"

namespace fairway {
namespace {

class Deadlines : public TwoEngines {
 protected:
  void SetUp() override {
    TwoEngines::SetUp();
    std::array<PeerEvent, 1> event;
    for (int tries = 0; tries < 10'000 && right_->poll_peer_events(event) == 0; ++tries) std::this_thread::yield();
    left_peer_ = event[0].peer;
  }
  static RequestOptions left_over(Timeout time) {
    RequestOptions options;
    options.deadline = time;
    return options;
  }
  PeerId left_peer_;  // as `right` knows it
};

TEST_P(Deadlines, OneThatHasPassedEndsEveryKindOfTransferUndone) {
  for (const Timeout passed : {Timeout(0), Timeout(-1), Timeout::min()}) {
    const RequestOptions late = left_over(passed);
    const Slice small{near_region_.id, 0, 64};
    const std::array begun{
        left_->write(right_peer_, extent(0, 0, 64), late), left_->write(right_peer_, extent(0, 0, 1u << 20), late),
        left_->read(right_peer_, extent(0, 64, 64), late), left_->fetch_add(right_peer_, {remote_.id, 0}, 5, late),
        left_->send(right_peer_, 1, small, late),          left_->receive(right_peer_, 1, small, late)};
    for (const auto& id : begun) {
      const Completion done = finish(id, *left_);
      EXPECT_EQ(done.status.code(), ErrorCode::deadline_exceeded) << done.status.to_string();
      EXPECT_EQ(done.status.effect(), Effect::not_applied);
      EXPECT_EQ(done.bytes, 0u);
    }
  }
  EXPECT_TRUE(std::ranges::all_of(far_, [](std::uint8_t byte) { return byte == 0; }));
  EXPECT_EQ(near_[0], 1) << "nor was anything read";
}

// What ended before it began has taken no place among messages: the next of that tag match.
TEST_P(Deadlines, AMessageWhoseDeadlineHasPassedTakesNoPlace) {
  (void)finish(left_->send(right_peer_, 4, {near_region_.id, 8, 64}, left_over(Timeout(0))), *left_);
  (void)finish(right_->receive(left_peer_, 4, {far_region_.id, 512, 64}, left_over(Timeout(0))), *right_);
  const auto receive = right_->receive(left_peer_, 4, {far_region_.id, 0, 64});
  EXPECT_TRUE(finish(left_->send(right_peer_, 4, {near_region_.id, 100, 64}), *left_).status);
  EXPECT_TRUE(finish(receive, *right_).status);
  EXPECT_EQ(0, std::memcmp(near_.data() + 100, far_.data(), 64));
  EXPECT_EQ(far_[512], 0);
}

TEST_P(Deadlines, WhatFollowsOneThatHasPassedFailsWithIt) {
  const auto first = left_->write(right_peer_, extent(0, 0, 64), left_over(Timeout(0)));
  RequestOptions behind;
  behind.after = *first;
  EXPECT_EQ(finish(left_->write(right_peer_, extent(0, 0, 64), behind), *left_).status.code(),
            ErrorCode::dependency_failed);
  EXPECT_EQ(finish(first, *left_).status.code(), ErrorCode::deadline_exceeded);
}

TEST_P(Deadlines, TheLongestOnesNeverPass) {
  for (const Timeout long_time : {kForever, kForever - Timeout(1)})
    for (const std::uint64_t length : {64u, 1u << 20})
      EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, length), left_over(long_time)), *left_).status);
}

INSTANTIATE_TEST_SUITE_P(Progress, Deadlines, testing::Values(Progress::threads, Progress::caller));

}  // namespace
}  // namespace fairway
