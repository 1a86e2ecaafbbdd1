// Promise 6, elastic: engines join, leave and restart at any time, and nobody else pauses. A restarted peer is a new
// incarnation: old handles fail fast with that reason, new ones work. Cases: killed hosts that come back at their
// address; handles of their first incarnation; traffic between others meanwhile; 64 engines that connect all to all at
// once, as threads and in the simulator.
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nodes.h"

namespace fairway::promises {
namespace {

TEST(Elastic, ARestartedPeerIsANewOneAndOldHandlesSaySo) {
  Cluster cluster;
  auto& a = cluster.add({nic()});
  auto& b = cluster.add({nic()});
  const auto old_road = cluster.connect(a, b);
  const auto old_description = *b.engine->describe(b.region);
  cluster.kill(b);
  cluster.run(50 * kMillisecond);  // until then the peer still counts as the old incarnation
  auto& again = cluster.restart(b, {nic()});
  const auto new_road = cluster.connect(a, again);
  EXPECT_NE(new_road.peer, old_road.peer);
  const auto write = [&](PeerId peer, RemoteRegionId memory) {
    return a.engine->write(peer, Extent{{a.region.id, 0, 8}, {memory, 0}});
  };
  const ErrorCode old_peer = write(old_road.peer, old_road.memory.id).status().code();
  EXPECT_TRUE(old_peer == ErrorCode::peer_dead || old_peer == ErrorCode::stale_incarnation) << to_string(old_peer);
  EXPECT_FALSE(write(new_road.peer, old_road.memory.id)) << "a region of the first life";
  EXPECT_EQ(a.engine->import_region(new_road.peer, old_description).status().code(), ErrorCode::stale_incarnation);
  EXPECT_FALSE(a.engine->lookup(old_road.peer, "x", Timeout(1000)));
  EXPECT_FALSE(a.engine->explain(old_road.peer));
  EXPECT_FALSE(a.engine->disconnect(old_road.peer));
  a.data()[0] = 42;
  EXPECT_TRUE(cluster.finish(a, write(new_road.peer, new_road.memory.id)).status);
  EXPECT_EQ(again.data()[0], 42);
}

TEST(Elastic, NobodyElsePausesWhenOneDies) {
  Cluster cluster;
  auto& a = cluster.add({nic()});
  auto& b = cluster.add({nic()});
  auto& c = cluster.add({nic()});
  const auto to_b = cluster.connect(a, b);
  const auto to_c = cluster.connect(a, c);
  const auto round_trip = [&] {
    const Time before = cluster.simulation().now();
    EXPECT_TRUE(cluster.finish(a, a.engine->write(to_c.peer, Cluster::extent(a, to_c, 0, 0, 64))).status);
    return cluster.simulation().now() - before;
  };
  std::vector<TransferId> lost;
  for (int i = 0; i < 100; ++i) lost.push_back(*a.engine->write(to_b.peer, Cluster::extent(a, to_b, 0, 0, 4096)));
  b.host->freeze();  // harder than a death, because no reset arrives
  Time worst = 0;
  for (int i = 0; i < 2000; ++i) worst = std::max(worst, round_trip());
  EXPECT_LT(worst, 10 * kMillisecond);
  for (const TransferId id : lost) (void)cluster.finish(a, id);
}

TEST(Elastic, PeersComeAndGoForEverInABoundedTable) {
  const auto loopback = make_loopback();
  EngineOptions options = options_of(loopback, "hub");
  options.max_peers = 4;
  options.max_remote_regions = 8;
  Node hub(options);
  std::set<PeerId> seen;
  for (int round = 0; round < 40; ++round) {
    Node guest(options_of(loopback, "guest"), 4096);
    auto peer = hub.engine().connect(guest.engine().address(), kSoon);
    ASSERT_TRUE(peer) << round << ": " << peer.status().to_string();
    EXPECT_TRUE(seen.insert(*peer).second);
    auto memory = hub.engine().lookup(*peer, "memory", kSoon);
    ASSERT_TRUE(memory) << memory.status().to_string();
    const Extent extent{{hub.region().id, 0, 64}, {memory->id, 0}};
    EXPECT_TRUE(finish(hub.engine(), hub.engine().write(*peer, extent)).status);
    guest.close();
    // Its slot is free again once the hub has seen it go.
    std::array<PeerEvent, 8> events;
    for (bool gone = false; !gone;) {
      ASSERT_TRUE(hub.engine().wait_peer_event(kSoon));
      const std::size_t count = hub.engine().poll_peer_events(events);
      for (std::size_t i = 0; i < count; ++i)
        gone |= events[i].kind == PeerEvent::Kind::down && events[i].peer == *peer;
    }
  }
}

TEST(Elastic, ConnectingAgainToALivingPeerGivesTheSameOne) {
  Pair pair;
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(*pair.left.engine().connect(pair.right.engine().address(), kSoon), pair.to_right);
  EXPECT_TRUE(pair.left.engine().disconnect(pair.to_right));
  EXPECT_FALSE(pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8)));
  const auto again = pair.left.engine().connect(pair.right.engine().address(), kSoon);
  ASSERT_TRUE(again) << again.status().to_string();
  EXPECT_NE(*again, pair.to_right);
}

TEST(Elastic, AnEngineDoesNotConnectToItself) {
  Pair pair;
  EXPECT_EQ(pair.left.engine().connect(pair.left.engine().address(), kSoon).status().code(), ErrorCode::unsupported);
}

TEST(Elastic, SixtyFourEnginesConnectAllToAllInOneMoment) {
  constexpr std::size_t kEngines = kSanitized ? 24 : 64;
  const auto loopback = make_loopback();
  std::vector<std::unique_ptr<Node>> nodes;
  for (std::size_t i = 0; i < kEngines; ++i) {
    EngineOptions options = options_of(loopback, "n" + std::to_string(i));
    options.max_transfers = 256;
    options.max_regions = 64;
    options.max_remote_regions = 256;
    options.peer_timeout = std::chrono::seconds(20);  // two cores for 192 threads: slow is not dead
    nodes.push_back(std::make_unique<Node>(options, 4096));
  }
  std::atomic<std::size_t> failed{0}, wrong{0};
  const auto everyone = [&](auto each) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kEngines; ++i) threads.emplace_back([&, i] { each(i); });
    for (std::thread& thread : threads) thread.join();
  };
  std::vector<std::vector<PeerId>> peers(kEngines, std::vector<PeerId>(kEngines));
  everyone([&](std::size_t i) {
    for (std::size_t k = 0; k < kEngines; ++k) {
      if (i == k) continue;
      auto peer = nodes[i]->engine().connect(nodes[k]->engine().address(), std::chrono::seconds(60));
      if (peer)
        peers[i][k] = *peer;
      else
        ++failed;
      if (!peer) ADD_FAILURE() << i << " to " << k << ": " << peer.status().to_string();
    }
  });
  ASSERT_EQ(failed, 0u);
  everyone([&](std::size_t i) {
    for (std::size_t k = 0; k < kEngines; ++k) {
      if (i == k) continue;
      auto memory = nodes[i]->engine().lookup(peers[i][k], "memory", std::chrono::seconds(60));
      if (!memory) {
        ++wrong;
        continue;
      }
      nodes[i]->words()[64] = i + 1;
      const Extent extent{{nodes[i]->region().id, 512, 8}, {memory->id, 8 * i}};
      const auto id = nodes[i]->engine().write(peers[i][k], extent);
      const auto done = id ? nodes[i]->engine().wait(*id, std::chrono::seconds(60)) : Result<Completion>(id.status());
      if (!done || !done->status) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0u);
  for (std::size_t k = 0; k < kEngines; ++k)
    for (std::size_t i = 0; i < kEngines; ++i) {
      if (i == k) continue;
      EXPECT_EQ(nodes[k]->words()[i], i + 1);
    }
  for (const auto& node : nodes) EXPECT_EQ(node->engine().metrics().peers.size(), kEngines - 1);
}

TEST(Elastic, AllToAllInTheSimulatorTakesNoStampede) {
  constexpr std::size_t kEngines = kSanitized ? 8 : 24;
  Cluster cluster;
  std::vector<Cluster::Node*> nodes;
  for (std::size_t i = 0; i < kEngines; ++i) {
    EngineOptions options;
    options.max_transfers = 64;
    nodes.push_back(&cluster.add({nic()}, options));
  }
  const Time before = cluster.simulation().now();
  for (std::size_t i = 0; i < kEngines; ++i)
    for (std::size_t k = 0; k < kEngines; ++k)
      if (i != k) {
        const auto peer = nodes[i]->engine->connect(nodes[k]->engine->address(), Cluster::kWithin);
        ASSERT_TRUE(peer) << peer.status().to_string();
      }
  EXPECT_LT(cluster.simulation().now() - before, 30 * kSecond);
  for (Cluster::Node* node : nodes) EXPECT_EQ(node->engine->metrics().links.size(), kEngines - 1);
}

}  // namespace
}  // namespace fairway::promises
