#include "transport/planned_links.h"

#include <set>

#include "unit/transport/planned_sides.h"

// Links that come up, end, and come up anew; planned_links_again_test.cc: attempts that fail;
// planned_links_peers_test.cc: peers that refuse or lie.
namespace fairway::transport {
namespace {

TEST_F(PlannedLinksTest, EachPairOfThePlanComesUpUnderOneNameAtBothEnds) {
  b_.ends.pairs = {{0, 2}, {1, 0}, {1, 0}};  // two links of one pair: two queue pairs of two ports
  connect();
  std::set<std::uint64_t> names;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    const Event here = a_.next_is(EventKind::link_up), there = b_.next_is(EventKind::link_up);
    EXPECT_EQ(here.link, (LinkId{slot, 1}));
    EXPECT_EQ(here.peer, kPeer);
    EXPECT_EQ(here.device, b_.ends.pairs[slot].initiator);
    EXPECT_EQ(there.device, b_.ends.pairs[slot].acceptor);
    EXPECT_EQ(a_.link(slot).peer_device, there.device);
    EXPECT_EQ(b_.link(slot).peer_device, here.device);
    EXPECT_EQ(here.value, there.value);
    names.insert(here.value);
    EXPECT_EQ(a_.ends.live[slot], Bytes(2, static_cast<std::byte>(b_.link(slot).end_name()))) << "the other's end";
    EXPECT_EQ(b_.ends.live[slot], Bytes(2, static_cast<std::byte>(a_.link(slot).end_name())));
    EXPECT_NE(a_.link(slot).end_name(), b_.link(slot).end_name());
  }
  EXPECT_EQ(names.size(), 3u);
  wait(60 * kSecond);
  EXPECT_EQ(a_.links.up().size(), 3u);
  EXPECT_TRUE(a_.happened.empty() && b_.happened.empty());
}

// The acceptor takes before the initiator sends, and nobody is told that a link is up before the peer can know.
TEST_F(PlannedLinksTest, WordsAndEventsAreQueuedInTheOrderTheyHappen) {
  begin();
  for (const Kind kind : {Kind::hello, Kind::open}) {
    EXPECT_EQ(carry(a_, b_).kind, kind);
    carry(b_, a_);
  }
  ASSERT_EQ(a_.state(), State::up);
  EXPECT_EQ(b_.state(), State::accepted) << "the initiator may not know yet";
  EXPECT_TRUE(b_.happened.empty());
  EXPECT_EQ(carry(a_, b_).kind, Kind::ready);
  b_.next_is(EventKind::link_up);

  a_.fail();
  a_.ends.drop_end(a_.link());
  a_.links.on_fenced(a_.link());
  a_.links.reconnect({0, 1});
  Event events[8];
  ASSERT_EQ(a_.events.take(events), 2u);
  EXPECT_EQ(read({events[0].bytes.begin(), events[0].bytes.end()}).kind, Kind::closed);
  EXPECT_EQ(read({events[1].bytes.begin(), events[1].bytes.end()}).kind, Kind::open);
  a_.links.exchange(kPeer, encode(say(Kind::accept, 0, 2), kVersion));
  ASSERT_EQ(a_.events.take(events), 2u);
  EXPECT_EQ(read({events[0].bytes.begin(), events[0].bytes.end()}).kind, Kind::ready);
  EXPECT_EQ(events[1].kind, EventKind::link_up);
}

TEST_F(PlannedLinksTest, AnAttemptBeforeTheAcceptorFencedIsHeldUntilReconnect) {
  for (const bool told : {true, false}) {  // that the initiator closed its end
    SCOPED_TRACE(told);
    const std::uint32_t epoch = a_.links.knows(kPeer) ? b_.link().id.epoch : 0;
    if (epoch == 0) bring_up();
    const LinkId was = b_.link().id;
    a_.happened.clear();
    b_.happened.clear();
    a_.fail();
    a_.fence();
    if (!told) a_.says.clear();
    a_.links.reconnect(a_.link().id);
    carry_all();
    EXPECT_EQ(b_.state(), State::down);
    EXPECT_EQ(b_.next_is(EventKind::link_down).link, was);
    EXPECT_EQ(b_.ends.failed.message(),
              told ? "ends: the peer closed its end" : "ends: the peer opened the link again");
    EXPECT_EQ(a_.state(), State::opening) << "no answer yet";
    b_.links.reconnect(was);
    EXPECT_EQ(b_.state(), State::down) << "it is not fenced";
    b_.fence();
    b_.says.clear();  // that its old end is closed concerns the attempt that is over
    b_.links.reconnect(was);
    EXPECT_EQ(b_.state(), State::accepted);
    carry_all();
    EXPECT_EQ(a_.state(), State::up);
    EXPECT_EQ(b_.state(), State::up);
    EXPECT_EQ(b_.link().id, (LinkId{0, was.epoch + 1}));
    EXPECT_EQ(a_.next_is(EventKind::link_down).link.epoch, was.epoch);
    EXPECT_EQ(a_.next_is(EventKind::link_up).value, b_.next_is(EventKind::link_up).value);
  }
  b_.fail();
  b_.fence();
  b_.links.reconnect(b_.link().id);
  b_.poll();
  EXPECT_EQ(b_.state(), State::waiting) << "what was held is taken once";
  EXPECT_EQ(read(b_.says.back()).kind, Kind::closed);
}

TEST_F(PlannedLinksTest, AHeldAttemptThatWasClosedIsNotTaken) {
  bring_up();
  b_.fail();
  b_.hear(say(Kind::open, 0, 2));
  b_.hear(say(Kind::closed, 0, 2));
  b_.fence();
  b_.links.reconnect({0, 1});
  EXPECT_EQ(b_.state(), State::waiting);
  b_.hear(say(Kind::open, 0, 3));
  EXPECT_EQ(b_.state(), State::accepted);
}

TEST_F(PlannedLinksTest, ANewerAttemptTakesThePlaceOfTheLast) {
  begin();
  carry(a_, b_);
  b_.hear(say(Kind::open, 0, 4));
  b_.hear(say(Kind::open, 0, 6));
  EXPECT_EQ(b_.state(), State::accepted);
  EXPECT_EQ(b_.link().attempt, 6u);
  b_.says.clear();
  for (const std::uint32_t late : {4u, 6u}) b_.hear(say(Kind::open, 0, late));
  EXPECT_TRUE(b_.says.empty()) << "late ones are not answered";
  b_.hear(say(Kind::ready, 0, 4));
  EXPECT_EQ(b_.state(), State::accepted);
  b_.hear(say(Kind::ready, 0, 6));
  EXPECT_EQ(b_.state(), State::up);
  b_.hear(say(Kind::ready, 0, 6));
  b_.next_is(EventKind::link_up);
  EXPECT_TRUE(b_.happened.empty()) << "once";
}

TEST_F(PlannedLinksTest, AnAnswerToAnEarlierAttemptIsNotHeard) {
  bring_up();
  a_.fail();
  a_.fence();
  a_.links.reconnect({0, 1});
  a_.hear(say(Kind::accept, 0, 1));
  EXPECT_EQ(a_.state(), State::opening);
  a_.hear(say(Kind::accept, 0, 2));
  EXPECT_EQ(a_.state(), State::up);
  a_.hear(say(Kind::accept, 0, 2));
  EXPECT_EQ(a_.link().id.epoch, 2u);
}

TEST_F(PlannedLinksTest, ClosedEndsWhatIsUpAndFreesWhatIsOnItsWay) {
  b_.ends.pairs = {{0, 0}, {1, 1}};
  begin();
  carry(a_, b_);
  b_.hear(say(Kind::closed, 0, 1));
  EXPECT_EQ(b_.state(0), State::waiting) << "there is nothing to close";

  b_.hear(say(Kind::open, 0, 1));
  b_.hear(say(Kind::closed, 0, 1));
  EXPECT_EQ(b_.state(0), State::waiting);
  EXPECT_TRUE(b_.ends.live.empty());

  b_.hear(say(Kind::open, 0, 2));
  b_.hear(say(Kind::closed, 0, 1));
  EXPECT_EQ(b_.state(0), State::accepted) << "that one is over";
  b_.hear(say(Kind::ready, 0, 2));
  b_.hear(say(Kind::closed, 0, 1));
  EXPECT_EQ(b_.state(0), State::up);
  b_.hear(say(Kind::closed, 0, 2));
  EXPECT_EQ(b_.state(0), State::down);
  EXPECT_EQ(b_.ends.failed.message(), "ends: the peer closed its end");
  b_.hear(say(Kind::closed, 0, 2));
  EXPECT_EQ(b_.state(0), State::down) << "once";
  b_.fence();
  b_.hear(say(Kind::closed, 0, 2));
  EXPECT_EQ(b_.state(0), State::fenced);

  carry(b_, a_);  // the plan
  EXPECT_EQ(a_.state(0), State::opening);
  a_.hear(say(Kind::closed, 0, 1));
  EXPECT_EQ(a_.state(0), State::fenced);
  EXPECT_EQ(a_.ends.live.size(), 1u);
  EXPECT_NE(a_.link(0).again_at, kNever);
}

TEST_F(PlannedLinksTest, DisconnectEndsEveryStateOnce) {
  b_.ends.pairs.assign(6, {0, 0});
  begin();
  carry(a_, b_);
  carry(b_, a_);
  a_.ends.refusals[3] = 1;
  for (std::uint16_t link = 0; link < 3; ++link) a_.hear(say(Kind::accept, link));
  a_.fail(1);
  a_.fail(2);
  a_.fence(2);
  a_.hear(say(Kind::closed, 3));
  for (std::uint16_t link = 0; link < 3; ++link) b_.hear(say(Kind::open, link));
  b_.hear(say(Kind::ready, 1));
  const State here[] = {State::up, State::down, State::fenced, State::fenced, State::opening, State::opening};
  for (std::uint32_t slot = 0; slot < 6; ++slot) EXPECT_EQ(a_.state(slot), here[slot]) << slot;
  EXPECT_EQ(b_.state(2), State::accepted);
  EXPECT_EQ(b_.state(3), State::waiting);
  for (Side* side : {&a_, &b_}) {
    side->says.clear();
    std::vector<std::uint32_t> left;
    side->links.disconnect(kPeer, [&](PlannedLinks::Link& link) {
      left.push_back(link.id.slot);
      side->fence(link.id.slot);
    });
    side->poll();
    EXPECT_EQ(left, side == &a_ ? std::vector<std::uint32_t>({0, 1}) : std::vector<std::uint32_t>({1}));
    std::vector<std::uint16_t> closed;
    for (const Bytes& bytes : side->says) {
      EXPECT_EQ(read(bytes).kind, Kind::closed);
      EXPECT_EQ(read(bytes).token, token_);
      closed.push_back(read(bytes).link);
    }
    EXPECT_EQ(closed, side == &a_ ? std::vector<std::uint16_t>({0, 1, 4, 5}) : std::vector<std::uint16_t>({0, 1, 2}));
    EXPECT_TRUE(side->ends.live.empty());
    EXPECT_TRUE(side->links.up().empty());
    EXPECT_FALSE(side->links.knows(kPeer));
    EXPECT_EQ(side->links.find({0, 1}), nullptr);
  }
  wait(60 * kSecond);
  EXPECT_EQ(a_.says.size(), 4u) << "nothing of it is tried again, and no deadline passes";
}

TEST_F(PlannedLinksTest, ANewSessionTakesNothingOfTheLastButHigherEpochs) {
  b_.ends.pairs.assign(2, {0, 0});
  a_.ends.refusals[1] = 2;
  bring_up();
  wait(10 * kMillisecond);  // the second attempt of link 1
  b_.hear(say(Kind::open, 0, 9));
  const auto token = token_;
  for (Side* side : {&a_, &b_}) side->links.disconnect(kPeer, [&](PlannedLinks::Link&) { side->fence(); });
  a_.says.clear();
  b_.says.clear();
  a_.ends.refusals[1] = 1;
  connect();
  EXPECT_NE(token_, token);
  EXPECT_EQ(a_.next_is(EventKind::link_up).link, (LinkId{0, 2}));
  EXPECT_EQ(a_.links.find({0, 1}), nullptr);
  EXPECT_NE(a_.links.find({0, 2}), nullptr);
  EXPECT_EQ(a_.link().attempt, 1u);
  EXPECT_EQ(a_.link(1).again_at, after(a_.host.now(), 10 * kMillisecond)) << "the first pause";
}

TEST_F(PlannedLinksTest, ReconnectIsForFencedLinksOfThisEpoch) {
  bring_up();
  a_.links.reconnect({0, 1});
  EXPECT_EQ(a_.state(), State::up);
  a_.fail();
  a_.links.reconnect({0, 1});
  EXPECT_EQ(a_.state(), State::down);
  a_.fence();
  EXPECT_TRUE(a_.links.up().empty());
  for (const LinkId id : {LinkId{0, 0}, LinkId{0, 2}, LinkId{1, 1}}) a_.links.reconnect(id);
  EXPECT_EQ(a_.state(), State::fenced);
  a_.links.reconnect({0, 1});
  EXPECT_EQ(a_.state(), State::opening);
}

TEST_F(PlannedLinksTest, APeerIsConnectedOnce) {
  begin();
  EXPECT_EQ(a_.links.connect(kPeer, Role::acceptor).code(), ErrorCode::already_exists);
  EXPECT_EQ(a_.links.peers(), std::vector<PeerIndex>{kPeer});
}

TEST_F(PlannedLinksTest, NotesOfWhoKnowsThePlanComeBeforeAnyEnd) {
  a_.ends.takes_notes = b_.ends.takes_notes = true;
  a_.ends.when_planned = [&](PeerIndex peer) { a_.links.note(peer, Bytes(3, std::byte{1})); };
  b_.ends.when_planned = [&](PeerIndex peer) { b_.links.note(peer, Bytes(4, std::byte{2})); };
  for (Ends* each : {&a_.ends, &b_.ends})
    each->on_connect = [each] { EXPECT_EQ(each->notes.size(), 1U) << "an end came first"; };
  connect();
  EXPECT_EQ(b_.ends.notes, std::vector<Bytes>{Bytes(3, std::byte{1})});
  EXPECT_EQ(a_.ends.notes, std::vector<Bytes>{Bytes(4, std::byte{2})});
}

TEST_F(PlannedLinksTest, NotesGoToTheMaker) {
  a_.ends.takes_notes = b_.ends.takes_notes = true;
  connect();
  a_.links.note(kPeer, Bytes(3, std::byte{1}));
  b_.links.note(kPeer, Bytes(4, std::byte{2}));
  a_.links.note(kPeer + 1, Bytes(5, std::byte{3}));  // of nobody
  carry_all();
  EXPECT_EQ(b_.ends.notes, std::vector<Bytes>{Bytes(3, std::byte{1})});
  EXPECT_EQ(a_.ends.notes, std::vector<Bytes>{Bytes(4, std::byte{2})});
  EXPECT_FALSE(a_.links.knows(kPeer + 1));
}

}  // namespace
}  // namespace fairway::transport
