// Promise 8, alive: a killed process on a live host is detected at once; a frozen process, a dead host or a partition
// within a set bound; on both sides. Every wait takes a timeout. Cases: each of these faults with and without work in
// flight, timed on the virtual clock; a thawed peer that must learn that it was declared dead; every waiting call with
// nothing to wait for.
#include <array>
#include <vector>

#include "cluster.h"
#include "nodes.h"

namespace fairway::promises {
namespace {

// The reason for which `node`'s first peer went down.
std::optional<Status> down(Cluster::Node& node) {
  std::array<PeerEvent, 8> events;
  const std::size_t count = node.engine->poll_peer_events(events);
  for (std::size_t i = 0; i < count; ++i)
    if (events[i].kind == PeerEvent::Kind::down) return events[i].reason;
  return std::nullopt;
}

// Virtual time until `node` reports its peer down; 0: not within 20 seconds.
Time until_down(Cluster& cluster, Cluster::Node& node, Status& reason) {
  const Time start = cluster.simulation().now();
  while (cluster.simulation().now() < start + 20 * kSecond) {
    cluster.run(kMillisecond);
    if (auto why = down(node)) {
      reason = *why;
      return cluster.simulation().now() - start;
    }
  }
  return 0;
}

EngineOptions bound(int milliseconds) {
  EngineOptions options;
  options.peer_timeout = std::chrono::milliseconds(milliseconds);
  return options;
}

TEST(Alive, AKilledProcessIsNoticedWithinTwentyMilliseconds) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Cluster cluster(seed);
    auto& a = cluster.add({nic()});
    auto& b = cluster.add({nic()});
    const auto road = cluster.connect(a, b);
    const auto id = a.engine->receive(road.peer, 1, {a.region.id, 0, 8});
    cluster.kill(b);
    Status reason;
    const Time took = until_down(cluster, a, reason);
    EXPECT_GT(took, 0u);
    EXPECT_LT(took, 20 * kMillisecond);
    EXPECT_EQ(reason.code(), ErrorCode::peer_dead) << reason.to_string();
    EXPECT_FALSE(reason.peer().empty());
    EXPECT_EQ(cluster.finish(a, id).status.code(), ErrorCode::peer_dead);
  }
}

TEST(Alive, AFrozenPeerIsDeadWithinTheBoundAndLearnsItOnThaw) {
  for (const int milliseconds : {200, 2000})
    for (const bool busy : {false, true}) {
      Cluster cluster;
      auto& a = cluster.add({nic()}, bound(milliseconds));
      auto& b = cluster.add({nic()}, bound(milliseconds));
      const auto road = cluster.connect(a, b);
      cluster.run(3 * kSecond);
      EXPECT_FALSE(down(a)) << "nothing was wrong";
      b.host->freeze();
      std::vector<TransferId> ids;
      for (int i = 0; busy && i < 10; ++i)
        ids.push_back(*a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 4096)));
      Status reason;
      const Time took = until_down(cluster, a, reason);
      EXPECT_GT(took, 0u);
      EXPECT_LE(took, static_cast<Time>(milliseconds) * kMillisecond * 11 / 10 + 2 * kMillisecond);
      EXPECT_EQ(reason.code(), ErrorCode::peer_dead) << reason.to_string();
      for (const TransferId id : ids) (void)cluster.finish(a, id);
      b.host->thaw();
      EXPECT_GT(until_down(cluster, b, reason), 0u);
      EXPECT_EQ(reason.code(), ErrorCode::stale_incarnation) << reason.to_string();
      EXPECT_TRUE(a.engine->connect(b.engine->address(), Cluster::kWithin));
    }
}

TEST(Alive, APartitionIsNoticedOnBothSidesWithinTheBound) {
  Cluster cluster;
  auto& a = cluster.add({nic()}, bound(500));
  auto& b = cluster.add({nic()}, bound(500));
  const auto road = cluster.connect(a, b);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 40'000));
  cluster.simulation().set_partition(a.host->index(), b.host->index(), true);
  std::optional<Status> near_side, far_side;
  const Time start = cluster.simulation().now();
  while (cluster.simulation().now() < start + 600 * kMillisecond) {
    cluster.run(kMillisecond);
    if (!near_side) near_side = down(a);
    if (!far_side) far_side = down(b);
  }
  ASSERT_TRUE(near_side && far_side);
  EXPECT_EQ(near_side->code(), ErrorCode::peer_dead) << near_side->to_string();
  EXPECT_EQ(far_side->code(), ErrorCode::peer_dead) << far_side->to_string();
  (void)cluster.finish(a, id);
}

TEST(Alive, APauseShorterThanTheBoundKillsNobody) {
  Cluster cluster;
  auto& a = cluster.add({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  for (int i = 0; i < 5; ++i) {
    b.host->freeze();
    const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64));
    cluster.run(1200 * kMillisecond);
    b.host->thaw();
    EXPECT_TRUE(cluster.finish(a, id).status);
    cluster.run(kSecond);
  }
  EXPECT_FALSE(down(a));
  EXPECT_FALSE(down(b));
}

TEST(Alive, EveryWaitTakesATimeout) {
  Pair pair;
  Engine& engine = pair.left.engine();
  std::array<PeerEvent, 16> events;
  while (engine.poll_peer_events(events) > 0) {
  }
  constexpr Timeout kShort = std::chrono::milliseconds(3);
  const auto id = engine.receive(pair.to_right, 1, {pair.left.region().id, 0, 8});
  EXPECT_EQ(engine.wait(*id, kShort).status().code(), ErrorCode::timed_out);
  EXPECT_EQ(engine.wait_notification(kShort).code(), ErrorCode::timed_out);
  EXPECT_EQ(engine.wait_counter(1, 1, kShort).code(), ErrorCode::timed_out);
  EXPECT_EQ(engine.wait_peer_event(kShort).code(), ErrorCode::timed_out);
  EXPECT_EQ(engine.lookup(pair.to_right, "nothing", kShort).status().code(), ErrorCode::timed_out);
  const auto nobody = engine.connect("127.0.0.1:1", std::chrono::milliseconds(50));
  EXPECT_TRUE(nobody.status().code() == ErrorCode::timed_out || nobody.status().code() == ErrorCode::unreachable)
      << nobody.status().to_string();
  EXPECT_TRUE(engine.cancel(*id, kSoon));
  EXPECT_EQ(finish(engine, id).status.code(), ErrorCode::cancelled);
}

TEST(Alive, ADeadlineEndsATransferOnceItIsFenced) {
  Cluster cluster;
  auto& a = cluster.add({nic(1'000'000)});  // 64 KiB take 65 ms
  auto& b = cluster.add({nic(1'000'000)});
  const auto road = cluster.connect(a, b);
  RequestOptions options;
  options.deadline = std::chrono::milliseconds(2);
  const Time start = cluster.simulation().now();
  const auto receive = a.engine->receive(road.peer, 1, {a.region.id, 0, 8}, options);
  const Completion done = cluster.finish(a, receive);
  EXPECT_EQ(done.status.code(), ErrorCode::deadline_exceeded);
  EXPECT_LT(cluster.simulation().now() - start, 10 * kMillisecond);
  const auto write = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 60'000), options);
  EXPECT_EQ(cluster.finish(a, write).status.code(), ErrorCode::deadline_exceeded);
}

}  // namespace
}  // namespace fairway::promises
