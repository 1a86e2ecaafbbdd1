#include "unit/transport/planned_sides.h"

// What planned links make of a peer that refuses, or that says what none of this version would.
namespace fairway::transport {
namespace {

struct Wrong {
  const char* what;
  Kind kind;
  std::uint16_t link = 0;
};

class PlannedPeers : public PlannedLinksTest {
 protected:
  // The peer's word ended it: `side` says why to the peer, tells of it once, and hears no more.
  void expect_failed(Side& side, ErrorCode code, const std::string& words) {
    ASSERT_FALSE(side.says.empty());
    EXPECT_EQ(read(side.says.back()).kind, Kind::refused);
    EXPECT_EQ(read(side.says.back()).reason, words);
    const Event event = side.next_is(EventKind::link_down);
    EXPECT_EQ(event.status.code(), code);
    EXPECT_EQ(event.status.message(), words);
    EXPECT_TRUE(side.happened.empty()) << "told once";
    side.says.clear();
    for (const Kind kind : {Kind::hello, Kind::plan, Kind::open, Kind::accept, Kind::ready, Kind::closed, Kind::note})
      side.hear(say(kind, 0, 9));
    side.links.reconnect({0, 1});
    wait(60 * kSecond);
    EXPECT_TRUE(side.says.empty());
    EXPECT_TRUE(side.happened.empty());
  }
};

TEST_F(PlannedPeers, ARefusedPlanIsToldToBoth) {
  b_.ends.pairs.clear();
  begin();
  carry(a_, b_);
  const Bytes refused = b_.says.back();
  expect_failed(b_, ErrorCode::unreachable, "ends: no device meets another");
  a_.hear(refused);
  const Event event = a_.next_is(EventKind::link_down);
  EXPECT_EQ(event.peer, kPeer);
  EXPECT_EQ(event.link.epoch, 0u);
  EXPECT_EQ(event.status.code(), ErrorCode::unreachable);
  EXPECT_EQ(event.status.message(), "the peer: ends: no device meets another");
  EXPECT_TRUE(a_.says.empty()) << "who refuses knows";
}

TEST_F(PlannedPeers, APlanThatCannotBeIsRefusedByTheInitiator) {
  a_.ends.plan_is = Status(ErrorCode::protocol_error, "ends: such a device there is not");
  begin();
  carry(a_, b_);
  carry(b_, a_);
  EXPECT_TRUE(a_.ends.live.empty());
  carry(a_, b_);
  EXPECT_EQ(b_.next_is(EventKind::link_down).status.message(), "the peer: ends: such a device there is not");
  EXPECT_EQ(a_.next_is(EventKind::link_down).status.code(), ErrorCode::protocol_error);
}

TEST_F(PlannedPeers, WhatTheInitiatorMayNotHearFailsThePeer) {
  const Wrong all[] = {{"hello", Kind::hello}, {"a second plan", Kind::plan},   {"open", Kind::open},
                       {"ready", Kind::ready}, {"a note, of none", Kind::note}, {"no such link", Kind::accept, 1}};
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(wrong.what);
    bring_up();
    a_.hear(say(wrong.kind, wrong.link));
    EXPECT_EQ(a_.state(), State::down);
    expect_failed(a_, ErrorCode::protocol_error, "ends handshake: unexpected message");
    for (Side* side : {&a_, &b_}) side->links.disconnect(kPeer, [&](PlannedLinks::Link&) { side->fence(); });
    a_.says.clear();
    b_.says.clear();
    b_.happened.clear();
  }
}

TEST_F(PlannedPeers, RolesAreNotExchangedBeforeThereIsAPlan) {
  begin();
  a_.hear(say(Kind::hello));
  expect_failed(a_, ErrorCode::protocol_error, "ends handshake: unexpected message");
  token_ = {};  // of none
  b_.hear(say(Kind::plan));
  expect_failed(b_, ErrorCode::protocol_error, "ends handshake: unexpected message");
  EXPECT_TRUE(a_.links.all().empty() && b_.links.all().empty());
}

TEST_F(PlannedPeers, WhatTheAcceptorMayNotHearFailsThePeer) {
  const Wrong all[] = {{"a second hello", Kind::hello},    {"plan", Kind::plan},
                       {"accept", Kind::accept},           {"a note, of none", Kind::note},
                       {"no such link", Kind::open, 1},    {"the same", Kind::ready, 31},
                       {"the same again", Kind::closed, 1}};
  for (const Wrong& wrong : all) {
    SCOPED_TRACE(wrong.what);
    bring_up();
    b_.hear(say(wrong.kind, wrong.link, 2));
    EXPECT_EQ(b_.state(), State::down);
    expect_failed(b_, ErrorCode::protocol_error, "ends handshake: unexpected message");
    for (Side* side : {&a_, &b_}) side->links.disconnect(kPeer, [&](PlannedLinks::Link&) { side->fence(); });
    a_.says.clear();
    b_.says.clear();
    a_.happened.clear();
  }
}

TEST_F(PlannedPeers, BytesThatAreNoMessageFailThePeer) {
  begin();
  carry(a_, b_);
  b_.hear(say(Kind::open));
  ASSERT_EQ(b_.state(), State::accepted);
  b_.hear(Bytes(40, std::byte{0xff}));
  EXPECT_TRUE(b_.ends.live.empty());
  expect_failed(b_, ErrorCode::version_mismatch,
                "ends: the peer speaks handshake version 65535, this side 3: run the same Fairway on both sides");
  a_.hear(Bytes{});
  expect_failed(a_, ErrorCode::protocol_error, "malformed ends handshake: truncated");
}

TEST_F(PlannedPeers, AnEndThatIsNoneFailsThePeerThoughItWasUp) {
  for (Side* side : {&a_, &b_}) {
    bring_up();
    side->fail();
    side->fence();
    side->happened.clear();
    side->links.reconnect(side->link().id);
    PlannedHandshake message = say(side == &a_ ? Kind::accept : Kind::open, 0, 2);
    message.bytes.push_back(std::byte{0});
    side->hear(message);
    EXPECT_TRUE(side->ends.live.empty());
    expect_failed(*side, ErrorCode::protocol_error, "ends: an end that is none");
    for (Side* each : {&a_, &b_}) each->links.disconnect(kPeer, [&](PlannedLinks::Link&) { each->fence(); });
    a_.says.clear();
    b_.says.clear();
  }
}

// Of another session, or of one that says nothing yet: they may be the last words of a peer that went.
TEST_F(PlannedPeers, WordsOfAnotherSessionDecideNothing) {
  bring_up();
  for (Side* side : {&a_, &b_})
    for (const Kind kind : {Kind::plan, Kind::open, Kind::accept, Kind::ready, Kind::closed, Kind::note}) {
      PlannedHandshake late = say(kind);
      late.token[15] ^= std::byte{1};
      side->hear(late);
      EXPECT_EQ(side->state(), State::up);
      EXPECT_TRUE(side->says.empty());
    }
}

TEST_F(PlannedPeers, WhoIsNotConnectedIsNotHeard) {
  a_.hear(say(Kind::hello));
  EXPECT_TRUE(a_.says.empty());
  EXPECT_TRUE(a_.happened.empty());
}

TEST_F(PlannedPeers, ARefusalEndsEveryLink) {
  b_.ends.pairs.assign(2, {0, 0});
  begin();
  carry(a_, b_);
  carry(b_, a_);
  a_.hear(say(Kind::accept, 0));
  a_.happened.clear();
  a_.says.clear();
  PlannedHandshake refused;
  refused.kind = Kind::refused;
  refused.reason = "enough";
  a_.hear(refused);
  const Event event = a_.next_is(EventKind::link_down);
  EXPECT_EQ(event.link, (LinkId{0, 1})) << "a link that was up tells";
  EXPECT_EQ(event.status.message(), "the peer: enough");
  EXPECT_TRUE(a_.happened.empty());
  EXPECT_EQ(a_.state(1), State::fenced) << "was opening";
  EXPECT_FALSE(a_.ends.live.contains(1));
  EXPECT_TRUE(a_.says.empty());
  wait(60 * kSecond);
  EXPECT_TRUE(a_.says.empty());
}

// Ends fail the test when they are made twice or used when there are none.
TEST_F(PlannedPeers, NoOrderOfWordsMakesEndsOutOfTurn) {
  std::size_t came_up = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    sim::Random random(seed);
    b_.ends.pairs.assign(1 + random.below(3), {0, 0});
    b_.ends.takes_notes = a_.ends.takes_notes = true;
    begin();
    for (int turn = 0; turn < 60; ++turn) {
      Side& side = random.below(2) == 0 ? a_ : b_;
      Side& other = &side == &a_ ? b_ : a_;
      const auto slot = static_cast<std::uint32_t>(random.below(3));
      const auto* link = slot < side.links.all().size() ? &side.links.at(slot) : nullptr;
      if (random.below(100) == 0)
        side.hear(say(static_cast<Kind>(1 + random.below(8)), static_cast<std::uint16_t>(slot),
                      static_cast<std::uint32_t>(1 + random.below(9))));
      else if (random.below(3) != 0 && !other.says.empty())
        carry(other, side);
      else if (random.below(12) == 0)
        wait(random.below(6 * kSecond));
      else if (link != nullptr && link->state == State::up)
        side.fail(slot);
      else if (link != nullptr && link->state == State::down)
        side.fence(slot);
      else if (link != nullptr)
        side.links.reconnect(link->id);
      if (random.below(8) == 0) side.ends.refusals[static_cast<std::uint16_t>(random.below(3))] = 1;
      a_.poll();
      b_.poll();
    }
    for (Side* side : {&a_, &b_}) {
      side->links.disconnect(kPeer, [&](PlannedLinks::Link& link) { side->fence(link.id.slot); });
      side->poll();
      EXPECT_TRUE(side->ends.live.empty());
      EXPECT_TRUE(side->links.up().empty());
      for (const Event& event : side->happened) came_up += event.kind == EventKind::link_up ? 1 : 0;
      side->says.clear();
      side->happened.clear();
      side->ends.refusals.clear();
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(came_up, 5000u);
}

}  // namespace
}  // namespace fairway::transport
