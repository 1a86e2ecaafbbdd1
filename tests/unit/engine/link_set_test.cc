#include "engine/links/link_set.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "fake_peer.h"
#include "fake_wire.h"
#include "transport/optional_calls.h"

namespace fairway::engine {
namespace {

constexpr Time kPeerTimeout = kSecond;

// A wire that knows which bytes have arrived.
struct TellingWire final : FakeWire, transport::TellsProgress {
  std::uint64_t moved(transport::LinkId) override { return bytes; }
  std::string why_stalled(transport::LinkId) override { return cause; }
  std::uint64_t bytes = 0;
  std::string cause;
};

struct LinksOfAPeer : testing::Test, LinkOwner {
  explicit LinksOfAPeer(std::unique_ptr<FakeWire> by = std::make_unique<FakeWire>()) : peer(alone(std::move(by))) {}
  static WorkerTables::Transports alone(std::unique_ptr<FakeWire> by) {
    WorkerTables::Transports made;
    made.push_back(std::move(by));
    return made;
  }
  void link_up(std::uint8_t) override { ++ups; }
  void link_ready(Link&) override { ++readies; }
  void link_lost(Link&, bool) override { ++losses; }
  void epoch_closed(std::uint8_t, bool both) override { (both ? both_closed : here_closed) += 1; }
  void no_link(const std::string& reasons) override { none = reasons; }
  void link_slow(const Link&, std::string) override {}
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
  // A slice of a transfer that does not end.
  void post_one() {
    const std::uint32_t token = slices.acquire(peer.id().slot);
    slices[token].use = SliceUse::record;
    links->entered((*links)[0], false);
  }
  // Timers run as they ask to, `each` before each, for as long.
  void pass(
      Time time, const std::function<void()>& each = [] {}) {
    for (const Time until = peer.time + time; peer.time < until;) {
      each();
      const auto next = links->run_timers(peer.time);
      peer.time = std::min(until, std::max(peer.time + kMillisecond, next.value_or(until)));
    }
    (void)links->run_timers(peer.time);
  }
  // The link's next epoch, from its end on.
  void come_again(std::uint32_t epoch) {
    (*links)[0].in_flight = 0;
    links->on_fenced(0, {});
    links->on_link_closed({"wire", 70 + epoch - 1, 0});
    up(epoch);
    prove();
  }

  FakePeer peer;
  FakeWire* const wire = static_cast<FakeWire*>(peer.transports()[0].get());
  LocalRegions& locals = peer.tables.locals;
  RemoteRegions& remotes = peer.tables.remotes;
  ScratchMemory scratch{locals, 4, kMaxLinks* kScratchBytes};
  SliceTable& slices = peer.tables.slices;
  CountingRng rng;
  const RegionOwner& owner = peer.owner();
  std::optional<LinkSet> links{std::in_place, peer, *this, scratch, rng, PeerClock(false, peer.time),
                               kPeerTimeout,  true};
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

TEST_F(LinksOfAPeer, WhoseEndCannotBeFencedEndTheSessionAndLetNothingGoElsewhere) {
  connect();
  up();
  prove();
  links->on_link_down(0, {ErrorCode::link_failed, "the cable was pulled"});
  transport::Event open;
  open.status = {ErrorCode::not_fenced, "its endpoint did not close"};
  links->on_fenced(0, open);
  EXPECT_TRUE(told.empty()) << "the peer was told that nothing lands here any more";
  EXPECT_EQ(here_closed + both_closed, 0);
  EXPECT_EQ(peer.session_end.code(), ErrorCode::not_fenced);
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

struct SlowLinks : LinksOfAPeer {
  SlowLinks() : LinksOfAPeer(std::make_unique<TellingWire>()) {
    connect();
    up();
    prove();
  }
  TellingWire& telling() { return static_cast<TellingWire&>(*wire); }
};

TEST_F(SlowLinks, LiveAsLongAsBytesMoveThoughNoSliceEnds) {
  post_one();
  pass(20 * kPeerTimeout, [&] { ++telling().bytes; });
  EXPECT_EQ(state(), LinkState::ready);
  pass(kPeerTimeout * 3 / 4);
  EXPECT_EQ(state(), LinkState::ready);
  pass(kPeerTimeout / 2);
  EXPECT_EQ(state(), LinkState::closing) << "nothing has moved for the bound";
}

// A short slice may pass a long one that waits for a slow link, again and again.
TEST_F(SlowLinks, MayLetShortSlicesPassALongOne) {
  post_one();
  pass(20 * kPeerTimeout, [&] {
    ++telling().bytes;
    (*links)[0].newest_done = peer.time;
  });
  EXPECT_EQ(state(), LinkState::ready);
}

TEST_F(SlowLinks, SayWhatTheirTransportKnowsOfAStall) {
  telling().cause = "the way swallows it";
  post_one();
  pass(2 * kPeerTimeout);
  EXPECT_EQ((*links)[0].down_reason.message(), "the way swallows it");
}

// Else transfers would wait for as long as their peer lives, each time with a new epoch.
TEST_F(SlowLinks, ThatStallAgainAndAgainAreNoLinkToWaitFor) {
  post_one();
  pass(2 * kPeerTimeout);
  ASSERT_EQ(state(), LinkState::closing);
  const Time since = links->no_link_since();
  EXPECT_NE(since, kNever);
  come_again(2);
  ASSERT_EQ(state(), LinkState::ready);
  EXPECT_EQ(links->no_link_since(), since) << "so far it has done no more than its proof";
  post_one();
  pass(kPeerTimeout / 2, [&] { telling().bytes += 32 * 1024; });
  EXPECT_EQ(links->no_link_since(), kNever) << "slices are on their way, though none is done";
  pass(2 * kPeerTimeout);
  ASSERT_EQ(state(), LinkState::closing);
  come_again(3);
  EXPECT_NE(links->no_link_since(), kNever);
  links->works((*links)[0]);
  EXPECT_EQ(links->no_link_since(), kNever);
}

TEST_F(SlowLinks, ThatStallAreTriedByTheNextTransfersOnceThoseThatWaitedHaveEnded) {
  post_one();
  pass(2 * kPeerTimeout);
  links->forgive_stalls();
  EXPECT_NE(links->no_link_since(), kNever) << "none is up";
  come_again(2);
  EXPECT_EQ(links->no_link_since(), kNever);
}

TEST_F(LinksOfAPeer, ThatTellNoBytesGetShorterSlicesOnceTheyStalled) {
  connect();
  up();
  prove();
  EXPECT_EQ((*links)[0].capabilities->max_slice_bytes, 1u << 20);
  post_one();
  pass(2 * kPeerTimeout);
  ASSERT_EQ(state(), LinkState::closing);
  come_again(2);
  ASSERT_EQ(state(), LinkState::ready);
  EXPECT_EQ((*links)[0].capabilities->max_slice_bytes, 64u * 1024);
  EXPECT_TRUE((*links)[0].has(transport::Op::read)) << "nothing else has changed";
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
