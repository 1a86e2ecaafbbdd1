#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/shared.h"
#include "engine/slice_table.h"
#include "engine/transfer.h"

namespace fairway::engine {
namespace {

TEST(TransferTable, AnIdIsCurrentUntilItsCompletionIsCollected) {
  TransferTable table(2);
  const std::uint32_t slot = table.acquire();
  const TransferId id = table.id(slot);
  EXPECT_TRUE(id);
  EXPECT_TRUE(table.is_active(id));
  EXPECT_FALSE(table.claim(id));  // not done
  table.publish(slot);
  EXPECT_EQ(table.stage(id), Stage::done);
  EXPECT_TRUE(table.claim(id));
  EXPECT_FALSE(table.claim(id));
  table.release(slot);
  EXPECT_EQ(table.stage(id), Stage::free);
  EXPECT_EQ(table.used(), 0u);
}

TEST(TransferTable, ALaterTransferOfTheSlotHasAnotherId) {
  TransferTable table(1);
  std::set<TransferId> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t slot = table.acquire();
    ASSERT_NE(slot, kNoSlot);
    EXPECT_EQ(table.acquire(), kNoSlot);  // full is not an error, and takes nothing
    const TransferId id = table.id(slot);
    EXPECT_TRUE(seen.insert(id).second);
    for (const TransferId old : seen) {
      ASSERT_EQ(table.is_active(old), old == id);
    }
    table.publish(slot);
    ASSERT_TRUE(table.claim(id));
    table.release(slot);
  }
}

TEST(TransferTable, IdsThatNeverWereAreFree) {
  TransferTable table(2);
  (void)table.acquire();
  for (const TransferId id : {TransferId{}, TransferId{0, 77}, TransferId{99, 1}, TransferId{~0u, ~0u}}) {
    EXPECT_EQ(table.stage(id), Stage::free);
    EXPECT_FALSE(table.claim(id));
  }
}

TEST(TransferTable, OneOfManyClaimsEachCompletion) {
  TransferTable table(4);
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t slot = table.acquire();
    const TransferId id = table.id(slot);
    table[slot].completion.bytes = static_cast<std::uint64_t>(round);
    std::atomic<int> claimed{0};
    std::atomic<std::uint64_t> bytes{0};
    const auto collect = [&] {
      while (table.stage(id) == Stage::active) std::this_thread::yield();
      if (!table.claim(id)) return;
      bytes = table[slot].completion.bytes;
      ++claimed;
    };
    std::thread first(collect), second(collect);
    table.publish(slot);
    first.join();
    second.join();
    EXPECT_EQ(claimed, 1);
    EXPECT_EQ(bytes, static_cast<std::uint64_t>(round));
    table.release(slot);
  }
}

TEST(SliceTable, PiecesLeaveRoomForProofsAndForCuttingAnew) {
  SliceTable table(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(table.room_for_pieces(), 0u);
    (void)table.acquire();
  }
  EXPECT_EQ(table.room_for_pieces(), 0u);
  EXPECT_GT(table.room(), 0u);
}

TEST(SliceTable, EveryLoanHasItsOwnSerial) {
  SliceTable table(3);
  const std::uint32_t all = table.room();
  EXPECT_EQ(table.room_for_pieces(), 3u);
  std::set<std::uint32_t> serials;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::uint32_t> tokens;
    while (table.room() > 0) {
      tokens.push_back(table.acquire());
      EXPECT_TRUE(serials.insert(table[tokens.back()].serial).second);
    }
    EXPECT_EQ(std::set(tokens.begin(), tokens.end()).size(), all);
    for (const std::uint32_t token : tokens) table.release(token);
  }
}

control::PeerInfo info(const std::string& name) {
  control::PeerInfo made;
  made.name = name;
  return made;
}

TEST(PeerTable, APeerIsUsableUntilItIsDownAndThenSaysWhy) {
  PeerTable table(2);
  const PeerId id = *table.add(11, info("a"));
  EXPECT_TRUE(table.is_usable(id));
  table.set_ready(id);
  EXPECT_EQ(table.find(id)->state, PeerTable::State::ready);
  EXPECT_TRUE(table.set_down(id, {ErrorCode::peer_dead, "no sign of life"}));
  EXPECT_FALSE(table.set_down(id, {ErrorCode::closed, "again"}));
  EXPECT_FALSE(table.is_usable(id));
  EXPECT_EQ(table.why_not(id).code(), ErrorCode::peer_dead);
  EXPECT_FALSE(table.find_session(12));
  EXPECT_EQ(table.find_session(11)->id, id);
}

TEST(PeerTable, AnotherTenantOfTheSlotIsNotTheOldPeer) {
  PeerTable table(1);
  const PeerId first = *table.add(1, info("a"));
  EXPECT_EQ(table.add(2, info("b")).status().code(), ErrorCode::resource_exhausted);
  EXPECT_TRUE(table.set_down(first, {ErrorCode::peer_dead, "gone"}));
  table.free(first);
  const PeerId second = *table.add(2, info("b"));
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_NE(second, first);
  EXPECT_FALSE(table.is_usable(first));
  EXPECT_EQ(table.why_not(first).code(), ErrorCode::stale_incarnation);
  table.set_ready(first);  // late words about the old one change nothing
  table.set_settled(first, {ErrorCode::unsupported, "late"});
  table.free(first);
  EXPECT_EQ(table.find(second)->state, PeerTable::State::opening);
  EXPECT_TRUE(table.find(second)->reason.is_ok());
  EXPECT_FALSE(table.add(3, info("c")));
}

TEST(PeerTable, IdsThatNeverWereAreRefused) {
  PeerTable table(1);
  for (const PeerId id : {PeerId{}, PeerId{0, 5}, PeerId{7, 1}}) {
    EXPECT_FALSE(table.is_usable(id));
    EXPECT_FALSE(table.find(id));
    EXPECT_FALSE(table.why_not(id).is_ok());
  }
}

TEST(PeerEvents, TheOldestGoAndTheNextOneTellsHowMany) {
  const PeerTable peers(1);
  PeerEvents events(peers);
  for (std::uint32_t i = 0; i < 1030; ++i) {
    PeerEvent event;
    event.kind = PeerEvent::Kind::link_up;
    event.incarnation = i;
    events.push(std::move(event));
  }
  std::vector<PeerEvent> got(2000);
  EXPECT_EQ(events.pop(got), 1024u);
  EXPECT_EQ(got[0].incarnation, 6u);
  EXPECT_NE(got[0].reason.message().find("6 earlier"), std::string::npos);
  EXPECT_TRUE(got[1].reason.is_ok());
  EXPECT_TRUE(events.empty());
}

// Control's thread says that a peer is back, its last session's worker that it went.
TEST(PeerEvents, WhoComesBackIsToldToBeUpAfterItWasToldToBeDown) {
  using Was = PeerEvent::Kind;
  PeerTable peers(4);
  PeerEvents events(peers);
  const auto add = [&](control::SessionId session) { return *peers.add(session, {}); };
  const auto push = [&](Was kind, PeerId peer, const char* name) {
    PeerEvent event;
    event.kind = kind;
    event.peer = peer;
    event.name = name;
    events.push(std::move(event));
  };
  const auto told = [&] {
    std::vector<PeerEvent> got(16);
    got.resize(events.pop(got));
    std::vector<std::pair<Was, PeerId>> all;
    for (const PeerEvent& each : got) all.emplace_back(each.kind, each.peer);
    return all;
  };
  using Told = std::vector<std::pair<Was, PeerId>>;
  const PeerId first = add(1), other = add(2);
  push(Was::up, first, "a");
  ASSERT_TRUE(peers.set_down(first, {ErrorCode::stale_incarnation, "it connects anew"}));
  const PeerId second = add(3);
  push(Was::up, second, "a");
  push(Was::link_up, second, "a (10.0.0.2:1)");
  push(Was::up, other, "b");  // nobody's successor
  push(Was::link_down, first, "a (10.0.0.2:1)");
  EXPECT_EQ(told(), (Told{{Was::up, first}, {Was::up, other}, {Was::link_down, first}}));
  ASSERT_TRUE(peers.set_down(second, {ErrorCode::closed, "and goes"}));
  push(Was::down, second, "a");
  const PeerId third = add(4);
  push(Was::up, third, "a");
  EXPECT_EQ(told(), Told());
  push(Was::down, first, "a");
  EXPECT_EQ(
      told(),
      (Told{{Was::down, first}, {Was::up, second}, {Was::link_up, second}, {Was::down, second}, {Was::up, third}}));
  push(Was::up, other, "a");  // two that live may have one name
  EXPECT_EQ(told(), (Told{{Was::up, other}}));
}

}  // namespace
}  // namespace fairway::engine
