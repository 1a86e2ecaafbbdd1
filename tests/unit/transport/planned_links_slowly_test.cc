#include "unit/transport/planned_sides.h"

// Ends whose connecting takes its time, as rdma_cm's does, and those that are first to be prepared, as a queue pair
// whose neighbour is to be found.
namespace fairway::transport {
namespace {

struct PlannedLinksSlowlyTest : PlannedLinksTest {
  // The initiator has the acceptor's end and is on its way there.
  void set_out() {
    a_.ends.connecting.insert(0);
    connect();
    ASSERT_EQ(a_.state(), State::opening);
    ASSERT_EQ(b_.state(), State::accepted);
  }
  void arrive() {
    a_.ends.connecting.erase(0);
    a_.links.on_connected(a_.link());
    carry_all();
  }
};

TEST_F(PlannedLinksSlowlyTest, ALinkIsUpOnceItsInitiatorIsConnected) {
  ASSERT_NO_FATAL_FAILURE(set_out());
  EXPECT_TRUE(a_.happened.empty() && b_.happened.empty());
  arrive();
  a_.next_is(EventKind::link_up);
  b_.next_is(EventKind::link_up);
  a_.links.on_connected(a_.link());  // told twice
  EXPECT_EQ(a_.links.up().size(), 1u);
}

TEST_F(PlannedLinksSlowlyTest, AnotherAnswerOnTheWayChangesNothing) {
  ASSERT_NO_FATAL_FAILURE(set_out());
  a_.hear(say(Kind::accept));  // connecting a second time would fail in Ends
  EXPECT_EQ(a_.state(), State::opening);
  arrive();
  EXPECT_EQ(b_.state(), State::up);
}

TEST_F(PlannedLinksSlowlyTest, OneThatFailsIsTriedAgain) {
  b_.ends.pairs = {{0, 0}, {1, 1}};
  ASSERT_NO_FATAL_FAILURE(set_out());
  ASSERT_EQ(a_.state(1), State::up);
  a_.ends.connecting.clear();
  a_.links.on_connect_failed(a_.link(), {ErrorCode::link_failed, "ends: turned away"});
  carry_all();
  EXPECT_EQ(a_.state(), State::fenced);
  EXPECT_EQ(b_.state(), State::waiting);
  wait(kSecond);
  carry_all();
  EXPECT_EQ(a_.state(), State::up);
  EXPECT_EQ(a_.link().attempt, 2u);
  a_.links.on_connect_failed(a_.link(), {ErrorCode::link_failed, "ends: of an attempt before"});
  EXPECT_EQ(a_.state(), State::up);
}

TEST_F(PlannedLinksSlowlyTest, OneThatTakesTooLongIsGivenUp) {
  ASSERT_NO_FATAL_FAILURE(set_out());
  wait(6 * kSecond);
  carry_all();
  const Event down = a_.next_is(EventKind::link_down);
  EXPECT_EQ(down.status.code(), ErrorCode::unreachable) << down.status.to_string();
  EXPECT_TRUE(a_.ends.live.empty());
}

TEST_F(PlannedLinksSlowlyTest, TheInitiatorHearsOfAnEndThatIsPrepared) {
  b_.ends.preparing.insert(0);
  connect();
  ASSERT_EQ(b_.state(), State::accepted);
  EXPECT_EQ(a_.state(), State::opening);
  b_.ends.preparing.clear();
  b_.links.on_prepared(b_.link());
  carry_all();
  EXPECT_EQ(a_.state(), State::up);
  EXPECT_EQ(b_.state(), State::up);
  EXPECT_EQ(a_.ends.live[0], Bytes(2, static_cast<std::byte>(b_.link().end_name())));
}

TEST_F(PlannedLinksSlowlyTest, ThePreparedEndOfTheLastAttemptIsTold) {
  b_.ends.preparing.insert(0);
  begin();
  carry(a_, b_);
  b_.hear(say(Kind::open, 0, 4));
  b_.hear(say(Kind::open, 0, 6));
  b_.says.clear();
  b_.ends.preparing.clear();
  b_.links.on_prepared(b_.link());
  b_.poll();
  ASSERT_EQ(b_.says.size(), 1u);
  EXPECT_EQ(read(b_.says.front()).kind, Kind::accept);
  EXPECT_EQ(read(b_.says.front()).attempt, 6u);
}

TEST_F(PlannedLinksSlowlyTest, AnInitiatorThatPreparesIsUpAfterwardsOrTriesAgain) {
  b_.ends.pairs = {{0, 0}, {1, 1}};
  a_.ends.preparing = {0, 1};
  connect();
  a_.hear(say(Kind::accept));
  ASSERT_EQ(a_.state(), State::opening);
  ASSERT_EQ(a_.state(1), State::opening);
  a_.ends.preparing.clear();
  a_.links.on_prepared(a_.link());
  a_.links.on_connect_failed(a_.link(1), {ErrorCode::system_error, "ends: no neighbour"});
  carry_all();
  EXPECT_EQ(a_.state(), State::up);
  EXPECT_EQ(a_.state(1), State::fenced);
  EXPECT_EQ(b_.state(1), State::waiting);
  wait(kSecond);
  carry_all();
  EXPECT_EQ(a_.state(1), State::up);
}

TEST_F(PlannedLinksSlowlyTest, ReadyBeforeAConnectionIsALie) {
  b_.ends.connecting.insert(0);
  begin();
  carry(a_, b_);
  carry(b_, a_);
  carry(a_, b_);
  ASSERT_EQ(b_.state(), State::accepted);
  b_.hear(say(Kind::ready));
  EXPECT_EQ(b_.next_is(EventKind::link_down).status.code(), ErrorCode::protocol_error);
  EXPECT_TRUE(b_.ends.live.empty());
}

}  // namespace
}  // namespace fairway::transport
