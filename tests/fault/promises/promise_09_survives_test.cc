// Promise 9, survives: the unfinished slices of a lost link fail over to the remaining links, but only once the old
// link is fenced for them, so that nothing is lost, applied twice or applied late. What cannot be known fails with an
// unknown outcome. Cases: links that break repeatedly under writes, reads, sends and atomics, with late frames of the
// old link that arrive after the target reused the memory; then links that never come back.
#include <numeric>
#include <vector>

#include "cluster.h"

namespace fairway::promises {
namespace {

NicDevice fragile() {
  NicDevice device = nic(500'000'000);
  device.nature.latency_max = 300 * kMicrosecond;
  device.nature.late = 20 * kMillisecond;
  device.device.capabilities.max_slice_bytes = 1024;
  return device;
}

TEST(Survives, EveryByteArrivesThoughLinksBreakAgainAndAgain) {
  std::uint64_t moved = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    auto& a = cluster.add({fragile(), fragile(), fragile()});
    auto& b = cluster.add({fragile(), fragile(), fragile()});
    const auto road = cluster.connect(a, b);
    for (std::size_t i = 0; i < Cluster::kBytes; ++i) a.data()[i] = static_cast<std::uint8_t>(i * 7 + seed);
    const bool reads = seed % 2 == 0;
    if (reads) std::memcpy(b.data(), a.data(), Cluster::kBytes);
    if (reads) std::memset(a.data(), 0, Cluster::kBytes);
    constexpr std::size_t kPart = 16'000;
    std::vector<TransferId> ids;
    for (std::size_t i = 0; i < 4; ++i) {
      const Extent extent = Cluster::extent(a, road, i * kPart, i * kPart, kPart);
      ids.push_back(*(reads ? a.engine->read(road.peer, extent) : a.engine->write(road.peer, extent)));
    }
    for (std::size_t i = 0; i < 5; ++i) {
      cluster.run((20 + seed * 11 % 60) * kMicrosecond);
      cluster.fabric().break_device(i % 2 == 0 ? *a.host : *b.host, i % 3, 300 * kMicrosecond);
    }
    for (const TransferId id : ids) {
      const Completion done = cluster.finish(a, id);
      EXPECT_TRUE(done.status) << done.status.to_string();
      EXPECT_EQ(done.bytes, kPart);
      moved += a.engine->explain(id)->retried_slices;
    }
    for (std::size_t i = 0; i < 4 * kPart; ++i) {
      const auto expected = static_cast<std::uint8_t>(i * 7 + seed);
      ASSERT_EQ(a.data()[i], expected) << i;
      ASSERT_EQ(b.data()[i], expected) << i;
    }
  }
  EXPECT_GT(moved, 20u) << "no slice had to move: nothing was tried";
}

// A fence domain of several links: one peer's trouble interrupts the others for a moment, and costs them nothing.
TEST(Survives, LinksThatShareAFenceEndTogetherAndComeBack) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    NicDevice shared = fragile();
    shared.nature.shares_fence = true;
    auto& a = cluster.add({shared});
    auto& b = cluster.add({fragile()});
    auto& c = cluster.add({fragile()});
    const auto to_b = cluster.connect(a, b), to_c = cluster.connect(a, c);
    cluster.run(10 * kMillisecond);
    for (std::size_t i = 0; i < Cluster::kBytes; ++i) a.data()[i] = static_cast<std::uint8_t>(i * 7 + seed);
    const auto written_b = a.engine->write(to_b.peer, Cluster::extent(a, to_b, 0, 0, Cluster::kBytes));
    const auto written_c = a.engine->write(to_c.peer, Cluster::extent(a, to_c, 0, 0, Cluster::kBytes));
    cluster.run((20 + seed * 11 % 60) * kMicrosecond);
    cluster.fabric().break_between(*a.host, *b.host);
    EXPECT_TRUE(cluster.finish(a, written_b).status);
    EXPECT_TRUE(cluster.finish(a, written_c).status);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), Cluster::kBytes), 0);
    EXPECT_EQ(std::memcmp(a.data(), c.data(), Cluster::kBytes), 0);
    const auto metrics = a.engine->metrics();
    ASSERT_EQ(metrics.links.size(), 2U);
    for (const LinkMetrics& link : metrics.links) EXPECT_EQ(link.failures, 1U) << link.name;
  }
}

TEST(Survives, NothingOfAnOldLinkLandsAfterTheTransferIsDone) {
  std::uint64_t stopped = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    auto& a = cluster.add({fragile(), fragile()});
    auto& b = cluster.add({fragile(), fragile()});
    const auto road = cluster.connect(a, b);
    std::memset(a.data(), 0x11, Cluster::kBytes);
    const bool reads = seed % 2 == 0;
    const Extent extent = Cluster::extent(a, road, 0, 0, 12'000);
    const auto id = reads ? a.engine->read(road.peer, extent) : a.engine->write(road.peer, extent);
    cluster.run(seed * 9 % 250 * kMicrosecond);
    cluster.fabric().break_device(*a.host, seed % 4 / 2, 500 * kMicrosecond);
    EXPECT_TRUE(cluster.finish(a, id).status);
    // Completed: the memory is reused at once, without deregistration.
    Cluster::Node& target = reads ? a : b;
    std::memset(target.data(), 0x99, Cluster::kBytes);
    cluster.run(100 * kMillisecond);
    for (std::size_t i = 0; i < Cluster::kBytes; ++i)
      ASSERT_EQ(target.data()[i], 0x99) << "byte " << i << " landed late";
    stopped += cluster.fabric().late_frames_stopped();
  }
  EXPECT_GT(stopped, 0u) << "no frame was late: nothing was tried";
}

// The sum tells how often each addition was applied.
TEST(Survives, AtomicsAreAppliedOnceOrSaidToBeUnknown) {
  std::uint64_t unknown = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    for (const bool messages : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (messages ? " by messages" : ""));
      Cluster cluster(seed);
      NicDevice device = fragile();
      if (messages) device.device.capabilities.operations = mask(transport::Op::message);
      auto& a = cluster.add({device, device});
      auto& b = cluster.add({device, device});
      const auto road = cluster.connect(a, b);
      std::vector<TransferId> ids;
      for (int i = 0; i < 30; ++i) ids.push_back(*a.engine->fetch_add(road.peer, {road.memory.id, 0}, 1));
      cluster.run(seed * 17 % 400 * kMicrosecond);
      cluster.fabric().break_device(*a.host, 0, kMillisecond);
      std::uint64_t ok = 0, in_doubt = 0;
      std::vector<bool> seen(64);
      for (const TransferId id : ids) {
        const Completion done = cluster.finish(a, id);
        if (done.status) {
          ++ok;
          ASSERT_LT(done.old_value, 64u);
          EXPECT_FALSE(seen[done.old_value]) << "two additions saw the same value";
          seen[done.old_value] = true;
        } else {
          EXPECT_EQ(done.status.effect(), Effect::unknown) << done.status.to_string();
          in_doubt += done.status.effect() == Effect::unknown;
        }
      }
      cluster.run(100 * kMillisecond);
      EXPECT_GE(b.words[0], ok);
      EXPECT_LE(b.words[0], ok + in_doubt);
      if (messages) {
        EXPECT_EQ(in_doubt, 0u) << "records are numbered: a lost one is sent again";
      }
      unknown += in_doubt;
    }
  EXPECT_GT(unknown, 0u) << "no addition was in flight on the link that broke: nothing was tried";
}

TEST(Survives, MessagesArriveOnceAndInOrderThoughLinksBreak) {
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    auto& a = cluster.add({fragile(), fragile()});
    auto& b = cluster.add({fragile(), fragile()});
    const auto road = cluster.connect(a, b);
    const auto back = b.engine->connect(a.engine->address(), Cluster::kWithin);
    ASSERT_TRUE(back);
    constexpr std::size_t kCount = 24;
    std::vector<TransferId> sends, receives;
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::size_t length = i % 3 == 0 ? 2500 : 100;  // some travel with their announcement, some do not
      std::memset(a.data() + i * 2600, static_cast<int>(i + 1), length);
      sends.push_back(*a.engine->send(road.peer, 1, {a.region.id, i * 2600, length}));
      receives.push_back(*b.engine->receive(*back, 1, {b.region.id, i * 2600, 2600}));
      if (i % 6 == seed % 6) {
        cluster.run(seed * 13 % 90 * kMicrosecond);
        cluster.fabric().break_device(*a.host, i % 2, 400 * kMicrosecond);
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::size_t length = i % 3 == 0 ? 2500 : 100;
      EXPECT_TRUE(cluster.finish(a, sends[i]).status);
      const Completion done = cluster.finish(b, receives[i]);
      EXPECT_TRUE(done.status) << done.status.to_string();
      EXPECT_EQ(done.bytes, length);
      EXPECT_EQ(b.data()[i * 2600], i + 1);
      EXPECT_EQ(b.data()[i * 2600 + length - 1], i + 1);
      EXPECT_EQ(b.data()[i * 2600 + length], 0);
    }
  }
}

TEST(Survives, WithoutAnyLinkLeftTransfersFailWithinTheBoundAndSayWhy) {
  Cluster cluster;
  EngineOptions options;
  options.peer_timeout = std::chrono::milliseconds(300);
  auto& a = cluster.add({fragile()}, options);
  auto& b = cluster.add({fragile()}, options);
  const auto road = cluster.connect(a, b);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 60'000));
  cluster.run(30 * kMicrosecond);
  cluster.fabric().break_device(*a.host, 0, 3 * kSecond);
  const Time start = cluster.simulation().now();
  const Completion done = cluster.finish(a, id);
  EXPECT_EQ(done.status.code(), ErrorCode::link_failed) << done.status.to_string();
  EXPECT_NE(done.status.effect(), Effect::not_applied);
  EXPECT_LT(cluster.simulation().now() - start, kSecond);
  // The link comes back, and the peer answers again.
  cluster.run(10 * kSecond);
  EXPECT_TRUE(cluster.finish(a, a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 60'000))).status);
}

// A posted receive has nothing on a link. If it were given up, a sender whose link comes back first would find no
// receive.
TEST(Survives, AReceiveOutlivesASpellWithoutLinksThatIsLongerThanTheBound) {
  Cluster cluster;
  EngineOptions options;
  options.peer_timeout = std::chrono::milliseconds(300);
  auto& a = cluster.add({fragile()}, options);
  auto& b = cluster.add({fragile()}, options);
  const auto road = cluster.connect(a, b);
  const auto back = b.engine->connect(a.engine->address(), Cluster::kWithin);
  ASSERT_TRUE(back);
  const auto in = b.engine->receive(*back, 1, {b.region.id, 0, 2500});
  cluster.fabric().break_device(*a.host, 0, kSecond);
  cluster.run(2 * kSecond);
  std::memset(a.data(), 7, 2500);
  EXPECT_TRUE(cluster.finish(a, a.engine->send(road.peer, 1, {a.region.id, 0, 2500})).status);
  const Completion done = cluster.finish(b, in);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(b.data()[2499], 7);
}

TEST(Survives, WithoutLinksForGoodAReceiveEndsWithTheSessionOnBothSides) {
  Cluster cluster;
  EngineOptions options;
  options.peer_timeout = std::chrono::milliseconds(300);
  auto& a = cluster.add({fragile()}, options);
  auto& b = cluster.add({fragile()}, options);
  const auto road = cluster.connect(a, b);
  const auto in = a.engine->receive(road.peer, 1, {a.region.id, 0, 64});
  cluster.fabric().break_device(*a.host, 0, 3600 * kSecond);
  const Time start = cluster.simulation().now();
  const Completion done = cluster.finish(a, in);
  EXPECT_EQ(done.status.code(), ErrorCode::link_failed) << done.status.to_string();
  EXPECT_NE(done.status.message().find("no link to the peer is left: loopback"), std::string::npos)
      << done.status.to_string();
  EXPECT_LT(cluster.simulation().now() - start, 31 * 300 * kMillisecond);
  cluster.run(100 * kMillisecond);
  std::vector<PeerEvent> events(64);
  events.resize(b.engine->poll_peer_events(events));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().kind, PeerEvent::Kind::down);
  EXPECT_NE(events.back().reason.message().find("no link to the peer is left"), std::string::npos)
      << events.back().reason.to_string();
}

// The peer dies with its links: the outcome of what was in flight is unknown and must be reported so.
TEST(Survives, WhatADeadPeerMayHaveSeenIsUnknownAndNotPostedAgain) {
  std::size_t doubtful = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Cluster cluster(seed);
    auto& a = cluster.add({fragile(), fragile()});
    auto& b = cluster.add({fragile(), fragile()});
    const auto road = cluster.connect(a, b);
    const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 60'000));
    cluster.run(100 * kMicrosecond);
    cluster.kill(b);
    const Completion done = cluster.finish(a, id);
    EXPECT_EQ(done.status.code(), ErrorCode::peer_dead) << done.status.to_string();
    doubtful += done.status.effect() == Effect::unknown;
  }
  EXPECT_GT(doubtful, 5u);
}

}  // namespace
}  // namespace fairway::promises
