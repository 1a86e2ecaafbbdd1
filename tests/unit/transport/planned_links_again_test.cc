#include <algorithm>

#include "unit/transport/planned_sides.h"

// Attempts that fail: when the next one is, and when there is none.
namespace fairway::transport {
namespace {

TEST_F(PlannedLinksTest, WhatFailedIsTriedAgainAfterGrowingPauses) {
  b_.ends.pairs = {{0, 0}, {1, 1}};
  a_.ends.refusals[1] = 7;
  connect();
  EXPECT_EQ(a_.state(0), State::up);
  std::uint32_t attempt = 1;
  for (const Time pause : {10, 20, 40, 80, 160, 200, 200}) {
    EXPECT_EQ(a_.link(1).attempt, attempt++);
    EXPECT_EQ(a_.links.next_deadline(), after(a_.host.now(), pause * kMillisecond));
    wait(pause * kMillisecond - 1);
    EXPECT_EQ(a_.state(1), State::fenced);
    wait(1);
    carry_all();
  }
  EXPECT_EQ(a_.state(1), State::up);
  EXPECT_EQ(b_.state(1), State::up);

  a_.ends.refusals[1] = 1;
  a_.fail(1);
  a_.fence(1);
  a_.links.reconnect({1, 1});
  EXPECT_EQ(a_.link(1).again_at, after(a_.host.now(), 10 * kMillisecond)) << "it was up: from the start";
  a_.poll();
  const auto told = std::find_if(a_.happened.begin(), a_.happened.end(),
                                 [](const Event& event) { return event.kind == EventKind::retry_failed; });
  ASSERT_NE(told, a_.happened.end());
  EXPECT_EQ(told->link, (LinkId{1, 1})) << "the epoch that ended";
  EXPECT_EQ(told->status.message(), "ends: the device is down");
  EXPECT_EQ(std::count_if(a_.happened.begin(), a_.happened.end(),
                          [](const Event& event) { return event.kind == EventKind::retry_failed; }),
            1)
      << "none of those before it was up";
}

TEST_F(PlannedLinksTest, BothSidesLearnWhyOneOfThemCannotComeBack) {
  bring_up();
  a_.fail();
  a_.fence();
  carry_all();
  b_.fence();
  carry_all();
  const auto learns = [](Side& side, const std::string& why) {
    const Event event = side.next_is(EventKind::retry_failed);
    EXPECT_EQ(event.link, (LinkId{0, 1})) << "the epoch that ended";
    EXPECT_EQ(event.status.message(), why);
    EXPECT_TRUE(side.happened.empty());
  };

  b_.ends.refusals[0] = 1;
  b_.links.reconnect({0, 1});
  a_.links.reconnect({0, 1});
  a_.happened.clear();
  b_.happened.clear();
  carry_all();
  learns(b_, "ends: the device is down");
  learns(a_, "ends: the peer closed its end: ends: the device is down");

  wait(10 * kMillisecond);
  carry(a_, b_);
  ASSERT_EQ(a_.state(), State::opening);
  ASSERT_EQ(b_.state(), State::accepted);
  a_.links.on_connect_failed(a_.link(), {ErrorCode::link_failed, "ends: no way there"});
  carry_all();
  learns(a_, "ends: no way there");
  learns(b_, "ends: the peer closed its end: ends: no way there");
  EXPECT_EQ(b_.state(), State::waiting);
}

TEST_F(PlannedLinksTest, AnAttemptThatFailsAtTheAcceptorIsTriedAgain) {
  bring_up();
  a_.fail();
  a_.fence();
  carry_all();
  b_.fence();
  b_.ends.refusals[0] = 2;
  b_.links.reconnect({0, 1});
  a_.links.reconnect({0, 1});
  carry_all();
  EXPECT_EQ(a_.state(), State::fenced);
  EXPECT_EQ(b_.state(), State::waiting);
  EXPECT_TRUE(a_.ends.live.empty());
  wait(10 * kMillisecond);
  carry_all();
  EXPECT_EQ(a_.state(), State::fenced);
  wait(20 * kMillisecond);
  carry_all();
  EXPECT_EQ(a_.state(), State::up);
  EXPECT_EQ(b_.link().id.epoch, 2u);
}

TEST_F(PlannedLinksTest, WithoutAnyHopeThePeerFailsWithTheReason) {
  b_.ends.pairs = {{0, 0}, {1, 1}};
  a_.ends.refusals = {{0, 1}, {1, 1}};
  connect();
  const Event here = a_.next_is(EventKind::link_down), there = b_.next_is(EventKind::link_down);
  EXPECT_EQ(here.link.epoch, 0u);
  EXPECT_EQ(here.peer, kPeer);
  EXPECT_EQ(here.status.code(), ErrorCode::unreachable);
  EXPECT_EQ(here.status.message(), "ends: the device is down");
  EXPECT_EQ(there.status.message(), "the peer: ends: the device is down");
  wait(60 * kSecond);
  EXPECT_TRUE(a_.says.empty()) << "nothing is tried again";
  EXPECT_EQ(a_.links.next_deadline(), kNever);
  EXPECT_TRUE(a_.happened.empty() && b_.happened.empty());
}

TEST_F(PlannedLinksTest, OneLinkThatMayComeIsHope) {
  for (const std::uint16_t first :
       {std::uint16_t{0}, std::uint16_t{1}}) {  // to open; the other was not, or is accepted
    SCOPED_TRACE(first);
    b_.ends.pairs = {{0, 0}, {1, 1}};
    b_.ends.refusals = {{0, 1}};
    begin();
    carry(a_, b_);
    b_.hear(say(Kind::open, first));
    b_.hear(say(Kind::open, 1 - first));
    EXPECT_EQ(b_.state(0), State::waiting);
    EXPECT_EQ(b_.state(1), State::accepted);
    b_.hear(say(Kind::open, 0, 2));
    EXPECT_EQ(b_.state(0), State::accepted);
    for (Side* side : {&a_, &b_}) {
      side->links.disconnect(kPeer, [](PlannedLinks::Link&) {});
      side->poll();
      side->says.clear();
    }
  }
}

TEST_F(PlannedLinksTest, WhatIsDueNextIsKnownOfAllLinks) {
  b_.ends.pairs.assign(3, {0, 0});
  a_.ends.refusals[1] = 1;
  begin();
  carry(a_, b_);
  const Time start = a_.host.now();
  const auto next = [&] { return (a_.links.next_deadline() - start) / kMillisecond; };
  carry(b_, a_);
  EXPECT_EQ(next(), 10u) << "link 1 again";
  a_.hear(say(Kind::accept, 0));
  wait(5 * kMillisecond);
  a_.hear(say(Kind::closed, 2));
  wait(5 * kMillisecond);
  EXPECT_EQ(a_.state(1), State::opening);
  EXPECT_EQ(next(), 15u) << "link 2 again";
  wait(5 * kMillisecond);
  EXPECT_EQ(a_.state(2), State::opening);
  EXPECT_EQ(next(), 5010u) << "link 1 without an answer";
  wait(4995 * kMillisecond);
  EXPECT_EQ(a_.state(1), State::fenced);
  EXPECT_EQ(next(), 5015u) << "link 2 likewise";
}

TEST_F(PlannedLinksTest, AfterTheLastAttemptNothingIsDue) {
  b_.ends.pairs.assign(2, {0, 0});
  a_.ends.refusals[1] = 2;
  connect();
  a_.link(1).attempt = kMaxPlannedAttempts - 2;
  wait(10 * kMillisecond);
  EXPECT_EQ(a_.link(1).attempt, kMaxPlannedAttempts - 1);
  wait(60 * kSecond);
  EXPECT_EQ(a_.link(1).attempt, kMaxPlannedAttempts - 1);
  EXPECT_EQ(a_.links.next_deadline(), kNever);
}

TEST_F(PlannedLinksTest, WhoDoesNotAnswerWithinFiveSecondsIsNotThere) {
  begin();
  carry(a_, b_);
  carry(b_, a_);  // the plan; what the initiator opens is lost
  ASSERT_EQ(a_.state(), State::opening);
  EXPECT_EQ(a_.links.next_deadline(), after(a_.host.now(), 5 * kSecond));
  wait(5 * kSecond - 1);
  EXPECT_EQ(a_.state(), State::opening);
  wait(1);
  const Event event = a_.next_is(EventKind::link_down);
  EXPECT_EQ(event.status.code(), ErrorCode::unreachable);
  EXPECT_EQ(event.status.message(), "ends: the peer did not answer within 5 s");
  EXPECT_TRUE(a_.ends.live.empty());
}

TEST_F(PlannedLinksTest, ALinkThatWasUpOutlivesAnAttemptWithoutAnswer) {
  bring_up();
  a_.fail();
  a_.fence();
  a_.links.reconnect({0, 1});
  a_.poll();
  a_.says.clear();  // all of it is lost
  wait(5 * kSecond);
  EXPECT_EQ(a_.state(), State::fenced);
  EXPECT_TRUE(a_.ends.live.empty());
  EXPECT_EQ(carry(a_, b_).kind, Kind::closed);
  wait(10 * kMillisecond);
  EXPECT_EQ(a_.link().attempt, 3u);
  EXPECT_EQ(read(a_.says.back()).kind, Kind::open);
}

}  // namespace
}  // namespace fairway::transport
