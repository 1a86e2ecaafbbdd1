// size: a few cases for each of seven tables
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/peer_schedule.h"
#include "engine/tables/peer_table.h"
#include "engine/tables/slices.h"
#include "engine/tables/transfer.h"

namespace fairway::engine {
namespace {

TEST(TransferTable, AnIdIsCurrentUntilItsCompletionIsCollected) {
  TransferTable table(2);
  const std::uint32_t slot = table.acquire();
  const TransferId id = table.id(slot);
  EXPECT_TRUE(id);
  EXPECT_TRUE(table.is_active(id));
  EXPECT_EQ(table.used(), 1u);
  EXPECT_TRUE(table.any_free());
  const std::uint32_t last = table.acquire();
  EXPECT_FALSE(table.any_free());
  table.publish(last, Stage::done);
  EXPECT_EQ(table.used(), 2u) << "until it is collected";
  EXPECT_TRUE(table.claim(table.id(last), Stage::done));
  table.release(last);
  EXPECT_FALSE(table.claim(id, Stage::done));  // not done
  table.publish(slot, Stage::done);
  EXPECT_EQ(table.stage(id), Stage::done);
  EXPECT_TRUE(table.claim(id, Stage::done));
  EXPECT_FALSE(table.claim(id, Stage::done));
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
    table.publish(slot, Stage::done);
    ASSERT_TRUE(table.claim(id, Stage::done));
    table.release(slot);
  }
}

TEST(TransferTable, WhatIsForPollIsClaimedByPollAlone) {
  TransferTable table(1);
  const std::uint32_t slot = table.acquire();
  const TransferId id = table.id(slot);
  table.publish(slot, Stage::done_to_poll);
  EXPECT_EQ(table.stage(id), Stage::done_to_poll);
  EXPECT_FALSE(table.claim(id, Stage::done)) << "a wait took what poll() was to return";
  EXPECT_TRUE(table.claim(id, Stage::done_to_poll));
  table.release(slot);
  EXPECT_EQ(table.used(), 0u);
}

// Generations as TransferTable gives them: from 1 up to the last one, then 1 again.
constexpr std::uint32_t kLastGeneration = (1u << 30) - 1;

TEST(Failures, AnOlderFailureIsKnownAfterLaterOnesOfTheSlot) {
  Failures failures;
  EXPECT_FALSE(failures.has(1));
  failures.add(3);
  failures.add(5);
  failures.add(6);
  for (std::uint32_t generation = 1; generation < 50; ++generation)
    EXPECT_EQ(failures.has(generation), generation == 3 || generation == 5 || generation == 6) << generation;
}

TEST(Failures, WhatNobodyCanTellAnyMoreCountsAsFailed) {
  Failures failures;
  failures.add(10);
  failures.add(42);  // 32 later: still both exact
  EXPECT_TRUE(failures.has(10));
  EXPECT_FALSE(failures.has(9));
  EXPECT_FALSE(failures.has(11));
  failures.add(43);  // 10 is out of the window
  EXPECT_TRUE(failures.has(10));
  EXPECT_TRUE(failures.has(9)) << "older than the window, in which 10 is no more: nobody can tell";
  EXPECT_FALSE(failures.has(11));
  EXPECT_TRUE(failures.has(42));
  EXPECT_TRUE(failures.has(43));
  failures.add(5000);
  EXPECT_TRUE(failures.has(43));
  EXPECT_FALSE(failures.has(4999));
}

TEST(Failures, OneFailureLongAgoFailsNoOther) {
  Failures failures;
  failures.add(7);
  EXPECT_TRUE(failures.has(7));
  EXPECT_FALSE(failures.has(6));
  EXPECT_FALSE(failures.has(8));
  EXPECT_FALSE(failures.has(100'000'000));
}

TEST(Failures, GenerationsComeRoundAgain) {
  Failures failures;
  failures.add(kLastGeneration - 1);
  failures.add(2);
  EXPECT_TRUE(failures.has(kLastGeneration - 1));
  EXPECT_FALSE(failures.has(kLastGeneration));
  EXPECT_FALSE(failures.has(1));
  EXPECT_TRUE(failures.has(2));
  EXPECT_FALSE(failures.has(3));
}

TEST(TransferTable, IdsThatNeverWereAreFree) {
  TransferTable table(2);
  (void)table.acquire();
  for (const TransferId id : {TransferId{}, TransferId{0, 77}, TransferId{99, 1}, TransferId{~0u, ~0u}}) {
    EXPECT_EQ(table.stage(id), Stage::free);
    EXPECT_FALSE(table.claim(id, Stage::done));
  }
}

TEST(TransferTable, GenerationsBeginAnewAfterTheLast) {
  TransferTable table(1, 0, 0, kLastGeneration - 1);
  std::set<TransferId> seen;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t slot = table.acquire();
    const TransferId id = table.id(slot);
    EXPECT_TRUE(id) << "no id has generation 0";
    EXPECT_TRUE(seen.insert(id).second);
    EXPECT_TRUE(table.is_active(id)) << id.generation;
    table.publish(slot, Stage::done);
    EXPECT_TRUE(table.claim(id, Stage::done));
    table.release(slot);
  }
  EXPECT_TRUE(seen.contains({0, kLastGeneration}));
  EXPECT_TRUE(seen.contains({0, 1}));

  AtOnceTable<StdAtomics, 1> places(kLastGeneration - 1);
  for (const std::uint32_t generation : {kLastGeneration, 1u, 2u}) {
    ASSERT_NE(places.space(), nullptr);
    EXPECT_EQ(places.add(nullptr, false), (std::pair<std::uint32_t, std::uint32_t>(0, generation)));
    std::uint64_t bytes = 0;
    void* user_data = nullptr;
    EXPECT_TRUE(places.collect(0, generation, false, bytes, user_data));
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
      if (!table.claim(id, Stage::done)) return;
      bytes = table[slot].completion.bytes;
      ++claimed;
    };
    std::thread first(collect), second(collect);
    table.publish(slot, Stage::done);
    first.join();
    second.join();
    EXPECT_EQ(claimed, 1);
    EXPECT_EQ(bytes, static_cast<std::uint64_t>(round));
    table.release(slot);
  }
}

TEST(TransferTable, WhatWasOverWhenAcceptedIsCollectedOnceToo) {
  TransferTable table(2, 0, 2);
  AtOnceTable<>& at_once = table.at_once(1);
  std::set<TransferId> seen;
  int user = 0;
  for (std::uint64_t i = 0; i < 3 * AtOnceTable<>::kSize; ++i) {
    AtOnceTable<>::Past* const past = at_once.space();
    ASSERT_NE(past, nullptr);
    past->bytes = i;
    const TransferId id = TransferTable::at_once_id(1, at_once.add(&user, i % 2 == 1));
    EXPECT_TRUE(TransferTable::is_at_once(id.slot));
    EXPECT_TRUE(seen.insert(id).second);
    EXPECT_EQ(table.stage(id), Stage::done);
    EXPECT_TRUE(table.was_given(id));
    EXPECT_EQ(table.id(id.slot), id);
    EXPECT_EQ(table.used_at_once(), 1u);
    Completion out;
    EXPECT_FALSE(table.collect_at_once(id, i % 2 == 0, out)) << "the other way";
    EXPECT_TRUE(table.collect_at_once(id, i % 2 == 1, out));
    EXPECT_EQ(out.id, id);
    EXPECT_TRUE(out.status);
    EXPECT_EQ(out.bytes, i);
    EXPECT_EQ(out.user_data, &user);
    EXPECT_FALSE(table.collect_at_once(id, i % 2 == 1, out));
    EXPECT_EQ(table.stage(id), Stage::free);
    ASSERT_NE(table.past_at_once(id, 1), nullptr) << "explain() still knows it";
    EXPECT_EQ(table.past_at_once(id, 0), nullptr);
  }
  EXPECT_EQ(table.used(), 0u);
  EXPECT_EQ(table.stage({1u << 31, 1}), Stage::free);
  EXPECT_EQ(table.stage({~0u, ~0u}), Stage::free);
  EXPECT_FALSE(table.was_given({~0u, 1}));
}

TEST(TransferTable, APlaceThatNobodyCollectsIsPassedOver) {
  TransferTable table(2, 0, 1);
  AtOnceTable<>& at_once = table.at_once(0);
  std::vector<TransferId> ids;
  while (at_once.space() != nullptr) ids.push_back(TransferTable::at_once_id(0, at_once.add(nullptr, false)));
  EXPECT_EQ(ids.size(), AtOnceTable<>::kSize);
  Completion out;
  for (std::size_t i = 1; i < ids.size(); ++i) EXPECT_TRUE(table.collect_at_once(ids[i], false, out));
  for (int i = 0; i < 5000; ++i) {
    ASSERT_NE(at_once.space(), nullptr);
    const TransferId id = TransferTable::at_once_id(0, at_once.add(nullptr, false));
    ASSERT_NE(id.slot, ids[0].slot);
    ASSERT_TRUE(table.collect_at_once(id, false, out));
  }
  EXPECT_TRUE(table.collect_at_once(ids[0], false, out));
}

TEST(SliceTable, PiecesLeaveRoomForProofsAndForCuttingAnew) {
  SliceTable table(3, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(table.free_for_pieces(), 0u);
    (void)table.acquire(0);
  }
  EXPECT_EQ(table.free_for_pieces(), 0u);
  EXPECT_GT(table.free_count(), 0u);
}

TEST(SliceTable, EveryLoanHasItsOwnSerial) {
  SliceTable table(3, 2);
  const std::uint32_t all = table.free_count();
  EXPECT_EQ(table.free_for_pieces(), 3u);
  std::set<std::uint32_t> serials;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::uint32_t> tokens;
    while (table.free_count() > 0) {
      tokens.push_back(table.acquire(0));
      EXPECT_TRUE(serials.insert(table[tokens.back()].serial).second);
    }
    EXPECT_EQ(std::set(tokens.begin(), tokens.end()).size(), all);
    for (const std::uint32_t token : tokens) table.release(token);
  }
}

std::vector<std::uint32_t> slices_of(SliceTable& table, std::uint32_t peer) {
  std::vector<std::uint32_t> found;
  table.for_each(peer, [&](std::uint32_t token, SliceEntry&) { found.push_back(token); });
  return found;
}

TEST(SliceTable, ListsThoseOfEachPeerTheOldestFirst) {
  SliceTable table(64, 2);
  std::vector<std::uint32_t> expected[2];
  for (std::uint32_t i = 0; i < 20; ++i) {
    expected[i % 2].push_back(table.acquire(i % 2));
    table[expected[i % 2].back()].owner = i;
  }
  for (const std::size_t gone : {0u, 3u, 7u}) {  // the first, one between, the last
    table.release(expected[0][gone]);
    expected[0].erase(expected[0].begin() + static_cast<std::ptrdiff_t>(gone));
  }
  EXPECT_EQ(slices_of(table, 0), expected[0]);
  EXPECT_EQ(slices_of(table, 1), expected[1]);
  expected[1].push_back(table.acquire(1));
  table[expected[1].back()].owner = 20;
  EXPECT_EQ(slices_of(table, 1), expected[1]);
  EXPECT_TRUE(table.any_of(1, [](const SliceEntry& entry) { return entry.owner == 20; }));
  EXPECT_FALSE(table.any_of(0, [](const SliceEntry& entry) { return entry.owner % 2 == 1; }));
}

TEST(SliceTable, AVisitMayReleaseWhatItHasNotSeenYet) {
  SliceTable table(64, 1);
  std::vector<std::uint32_t> tokens;
  for (int i = 0; i < 6; ++i) tokens.push_back(table.acquire(0));
  std::vector<std::uint32_t> outer, inner;
  table.for_each(0, [&](std::uint32_t token, SliceEntry&) {
    outer.push_back(token);
    if (token != tokens[1]) return;
    table.for_each(0, [&](std::uint32_t other, SliceEntry&) {
      inner.push_back(other);
      if (other == tokens[1])
        for (const std::size_t gone : {2u, 1u, 3u}) table.release(tokens[gone]);
    });
  });
  EXPECT_EQ(outer, (std::vector{tokens[0], tokens[1], tokens[4], tokens[5]}));
  EXPECT_EQ(inner, outer);
  EXPECT_EQ(slices_of(table, 0), (std::vector{tokens[0], tokens[4], tokens[5]}));
}

TEST(TimerHeap, GivesEachPeerOnceAndTheEarliestFirst) {
  constexpr std::uint32_t kPeers = 50;
  TimerHeap timers(kPeers);
  std::vector<Time> set(kPeers, kNever);
  std::uint64_t random = 1;
  for (int round = 0; round < 5000; ++round) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const auto peer = static_cast<std::uint32_t>(random >> 33) % kPeers;
    const Time at = (random >> 40) % 1000 + static_cast<Time>(round);
    if (random >> 61 == 0) {
      timers.clear(peer);
      set[peer] = kNever;
    } else {
      timers.at_latest(peer, at);
      set[peer] = std::min(set[peer], at);
    }
    ASSERT_EQ(timers.next(), *std::min_element(set.begin(), set.end()));
    if (random >> 60 != 1) continue;
    std::uint32_t due = 0;
    while (timers.pop(static_cast<Time>(round) + 100, due)) {
      ASSERT_EQ(set[due], *std::min_element(set.begin(), set.end()));
      ASSERT_LE(set[due], static_cast<Time>(round) + 100);
      set[due] = kNever;
    }
    ASSERT_GT(timers.next(), static_cast<Time>(round) + 100);
  }
}

TEST(ReadyList, HasEachPeerOnceInTheOrderInWhichTheyCame) {
  ReadyList ready(4);
  const auto listed = [&] {
    std::vector<std::uint32_t> peers;
    for (std::size_t i = 0; i < ready.size(); ++i) peers.push_back(ready[i]);
    return peers;
  };
  for (const std::uint32_t peer : {2u, 0u, 2u, 3u}) ready.add(peer);
  EXPECT_EQ(listed(), (std::vector<std::uint32_t>{2, 0, 3}));
  ready.remove_if([](std::uint32_t peer) { return peer == 2; });
  EXPECT_EQ(listed(), (std::vector<std::uint32_t>{0, 3}));
  ready.add(2);  // who has left may come again
  ready.remove(0);
  ready.remove(1);  // who is not there
  EXPECT_EQ(listed(), (std::vector<std::uint32_t>{3, 2}));
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

TEST(PeerTable, WhereTheEngineClosesACallIsRefusedAsClosedAndATransferIsCancelled) {
  PeerTable table(1);
  const PeerId id = *table.add(1, info("a"));
  EXPECT_TRUE(table.set_down(id, {ErrorCode::cancelled, "the engine is closing"}));
  EXPECT_EQ(table.why_not(id).code(), ErrorCode::closed);
  EXPECT_EQ(table.why_ended(id).code(), ErrorCode::cancelled);
}

TEST(PeerTable, APeerCompletesAtOnceWhenALinkOfItsOwnMay) {
  PeerTable table(1);
  const PeerId first = *table.add(1, info("a"));
  EXPECT_FALSE(table.at_once(first));
  table.set_at_once(first);
  EXPECT_TRUE(table.at_once(first));
  EXPECT_FALSE(table.at_once({7, 1}));
  EXPECT_TRUE(table.set_down(first, {ErrorCode::closed, "it left"}));
  table.free(first);
  const PeerId second = *table.add(2, info("b"));
  table.set_at_once(first);  // too late
  EXPECT_FALSE(table.at_once(second));
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
