#include "engine/link_set.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fake_peer.h"
#include "fake_wire.h"

namespace fairway::engine {
namespace {

constexpr Time kPeerTimeout = kSecond;

struct LinksOfAPeer : testing::Test, LinkOwner {
  static std::vector<std::unique_ptr<transport::Transport>> make(FakeWire*& wire) {
    std::vector<std::unique_ptr<transport::Transport>> made;
    made.push_back(std::make_unique<FakeWire>());
    wire = static_cast<FakeWire*>(made.back().get());
    return made;
  }
  void link_up(std::uint8_t) override { ++ups; }
  void link_ready(Link&) override { ++readies; }
  void link_lost(Link&, bool) override { ++losses; }
  void epoch_closed(std::uint8_t, bool both) override { (both ? both_closed : here_closed) += 1; }
  void no_link(const std::string& reasons) override { none = reasons; }
  void tell(const LinkClosed& message) override { told.push_back(message); }

  void connect(transport::Role role = transport::Role::initiator) {
    Description description;
    description.region = {1, 1};
    description.size_bytes = 1 << 20;
    description.access = Access::read | Access::write;
    Status error;
    const RemoteRegionId there = remotes.import(owner, description, error);
    const std::vector<std::string> names = {"wire", "other"};
    links->connect(names, role, there, 0);
  }
  void up(std::uint32_t epoch = 1) {
    transport::Event event;
    event.link = {0, epoch};
    event.value = 70 + epoch;
    links->on_link_up(0, event);
  }
  // As the worker does with their events.
  void finish_proof_slices() {
    for (const transport::SliceToken token : std::exchange(wire->posted, {})) {
      const std::uint32_t step = slices[token].owner;
      links->left((*links)[0], 0);
      slices.release(token);
      if (step < 2) links->proof_done(0, {});
    }
  }
  void prove() {
    while (!wire->posted.empty()) finish_proof_slices();
  }
  LinkState state() { return (*links)[0].state; }

  FakePeer peer;
  FakeWire* wire = nullptr;
  std::vector<std::unique_ptr<transport::Transport>> transports = make(wire);
  transport::RegionTable bounds{8};
  LocalRegions locals{{}, 0, peer.local};
  RemoteRegions remotes{transports, bounds};
  ScratchMemory scratch{locals, 4, kMaxLinks* kScratchBytes};
  SliceTable slices{64, 8};
  CountingRng rng;
  RegionOwner owner{FakePeer::kId, 1, 0};
  std::optional<LinkSet> links{std::in_place, peer, *this,
                               LinkSet::Parts{transports, locals, remotes, scratch, slices, rng, owner,
                                              PeerClock(false, peer.time), kPeerTimeout, true}};
  int ups = 0, readies = 0, losses = 0, here_closed = 0, both_closed = 0;
  std::string none;
  std::vector<LinkClosed> told;
};

TEST_F(LinksOfAPeer, AreReadyOnceWhatWasWrittenCameBack) {
  connect();
  up();
  EXPECT_EQ(state(), LinkState::proving);
  prove();
  EXPECT_EQ(state(), LinkState::ready);
  EXPECT_EQ(readies, 1);
  EXPECT_EQ(links->out(), 0u);
  EXPECT_EQ(links->no_link_since(), kNever);
}

TEST_F(LinksOfAPeer, ThatChangeBytesAreNotTrusted) {
  connect();
  up();
  wire->landed[kProofBytes - 1] ^= std::byte{1};
  prove();
  EXPECT_EQ(state(), LinkState::closing);
  EXPECT_EQ(readies, 0);
  EXPECT_EQ(wire->fenced.size(), 1u);
}

TEST_F(LinksOfAPeer, LetNothingGoElsewhereBeforeAnEndIsClosedAndWritesNotBeforeBothAre) {
  connect();
  up();
  prove();
  links->on_link_down(0, {ErrorCode::link_failed, "the cable was pulled"});
  EXPECT_EQ(here_closed + both_closed, 0);
  ASSERT_EQ(wire->fenced.size(), 1u);
  transport::Event fenced;
  fenced.value = 5;  // immediates received
  links->on_fenced(0, fenced);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].immediates, 5u);
  EXPECT_EQ(here_closed, 1);
  EXPECT_EQ(both_closed, 0);
  links->on_link_closed({"wire", 71, 9});
  EXPECT_EQ(both_closed, 1);
  EXPECT_EQ(state(), LinkState::closed);
  EXPECT_EQ((*links)[0].immediates_there, 9u);
  links->on_link_closed({"wire", 71, 9});  // a peer that says it twice
  EXPECT_EQ(peer.violations.size(), 1u);
}

TEST_F(LinksOfAPeer, AreTriedAgainByTheInitiatorAfterAPauseThatGrows) {
  connect();
  Time pause = 0;
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    up(epoch);
    links->on_link_down(0, {ErrorCode::link_failed, "again"});
    links->on_fenced(0, {});
    links->on_link_closed({"wire", 70 + epoch, 0});
    const Time retry = (*links)[0].retry_at;
    EXPECT_GT(retry - peer.time, pause);
    pause = retry - peer.time;
    peer.time = retry - 1;
    (void)links->run_timers(peer.time);
    EXPECT_EQ(wire->reconnects, static_cast<int>(epoch) - 1);
    peer.time = retry;
    (void)links->run_timers(peer.time);
    EXPECT_EQ(wire->reconnects, static_cast<int>(epoch));
    wire->posted.clear();
  }
}

TEST_F(LinksOfAPeer, AreExpectedAtOnceByWhoIsDialed) {
  connect(transport::Role::acceptor);
  up();
  links->on_link_down(0, {ErrorCode::link_failed, "once"});
  links->on_fenced(0, {});
  links->on_link_closed({"wire", 71, 0});
  EXPECT_EQ((*links)[0].retry_at, peer.time);
}

TEST_F(LinksOfAPeer, ThatThePeerClosedBeforeTheyWereSeenAreClosedAtOnce) {
  connect();
  links->on_link_closed({"wire", 71, 0});
  up();
  EXPECT_EQ(state(), LinkState::closing);
  links->on_fenced(0, {});
  EXPECT_EQ(state(), LinkState::closed);
}

TEST_F(LinksOfAPeer, ThatCompleteNothingWithinTheBoundAreClosedAndThenTheSessionEnds) {
  connect();
  up();
  prove();
  links->entered((*links)[0], false);
  peer.time += kPeerTimeout - 1;
  ASSERT_TRUE(links->run_timers(peer.time));
  EXPECT_EQ(state(), LinkState::ready);
  peer.time += 1;
  ASSERT_TRUE(links->run_timers(peer.time));
  EXPECT_EQ(state(), LinkState::closing);
  links->on_fenced(0, {});  // and the peer never says that its end is closed
  peer.time += 2 * kPeerTimeout;
  EXPECT_FALSE(links->run_timers(peer.time));
  EXPECT_EQ(peer.session_end.code(), ErrorCode::protocol_error);
}

TEST_F(LinksOfAPeer, WithWordsLostEndTheSession) {
  connect();
  up();
  prove();
  links->on_link_down(0, {ErrorCode::protocol_error, "a frame of no known kind"});
  EXPECT_EQ(peer.session_end.code(), ErrorCode::protocol_error);
}

TEST_F(LinksOfAPeer, ThatNoTransportMakesAreToldWithTheReason) {
  wire->refuses = {ErrorCode::unsupported, "no such port"};
  connect();
  EXPECT_TRUE(links->settled());
  EXPECT_NE(none.find("wire: no such port"), std::string::npos);
}

TEST_F(LinksOfAPeer, KeepToOneSocketOfAnInterfaceOnlyWhereBothEndsSayThatTheyHaveFewCores) {
  connect();
  const auto keeps = [&](unsigned here, unsigned there) {
    links->share_cores(here, there);
    up();
    return (*links)[0].view().one_of_way;
  };
  EXPECT_TRUE(keeps(kFewCores, 1));
  EXPECT_FALSE(keeps(kFewCores, kFewCores + 1));
  EXPECT_FALSE(keeps(kFewCores + 1, kFewCores));
  EXPECT_FALSE(keeps(0, 1)) << "unknown";
  EXPECT_FALSE(keeps(1, 0));
}

}  // namespace
}  // namespace fairway::engine
