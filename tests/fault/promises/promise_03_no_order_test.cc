// Promise 3, no order between transfers unless `after` requests it, so that every link can be used. Cases: a large
// transfer uses all links and delays none behind it; `after` holds its transfer back until the first one is visible,
// whatever the links, peers, workers and outcome.
#include <vector>

#include "cluster.h"
#include "nodes.h"

namespace fairway::promises {
namespace {

RequestOptions after(TransferId first) {
  RequestOptions options;
  options.after = first;
  return options;
}

TEST(NoOrder, ALargeTransferUsesEveryLinkAndASmallOneBehindItIsNotHeldUp) {
  Cluster cluster;
  NicDevice device = nic();
  device.device.capabilities.max_slice_bytes = 2048;
  EngineOptions options;
  auto& a = cluster.add({device, device, device}, options);
  auto& b = cluster.add({device, device, device}, options);
  const auto road = cluster.connect(a, b);
  const std::vector<std::uint64_t> index(64, 0);
  const Paged large{a.region.id, road.memory.id, Cluster::kBytes, 1, 1, index, index};  // 4 MiB
  const auto first = a.engine->write(road.peer, large);
  const auto second = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 8));
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(cluster.finish(a, second).status);
  EXPECT_EQ(a.engine->wait(*first, Timeout(0)).status().code(), ErrorCode::timed_out) << "it should still be moving";
  EXPECT_TRUE(cluster.finish(a, first).status);
  for (const LinkMetrics& link : a.engine->metrics().links) EXPECT_GT(link.bytes_out, 1u << 20) << link.name;
}

TEST(NoOrder, AfterStartsOnlyWhatItsFirstHasMadeVisible) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    NicDevice slow = nic(200'000'000);
    slow.nature.latency_min = 200 * kMicrosecond;
    slow.nature.latency_max = 400 * kMicrosecond;
    slow.device.capabilities.max_slice_bytes = 1024;
    auto& a = cluster.add({slow, nic()});
    auto& b = cluster.add({slow, nic()});
    const auto road = cluster.connect(a, b);
    std::memset(a.data(), 1, 20'000);
    const auto first = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 20'000));
    a.data()[30'000] = 2;
    const auto second = a.engine->write(road.peer, Cluster::extent(a, road, 30'000, 100, 1), after(*first));
    const auto third = a.engine->read(road.peer, Cluster::extent(a, road, 40'000, 100, 1), after(*second));
    ASSERT_TRUE(first && second && third);
    EXPECT_TRUE(cluster.finish(a, third).status);
    EXPECT_EQ(a.data()[40'000], 2) << "the read came before the write that it follows";
    EXPECT_EQ(b.data()[100], 2) << "the second write was overtaken by the first";
    EXPECT_EQ(b.data()[101], 1);
    EXPECT_TRUE(cluster.finish(a, second).status);
    EXPECT_TRUE(cluster.finish(a, first).status);
  }
}

// A chain over many peers and workers: each transfer of it belongs to another worker.
TEST(NoOrder, AfterReachesAcrossPeersAndWorkers) {
  const auto loopback = make_loopback();
  EngineOptions options = options_of(loopback, "hub");
  options.workers = 3;
  Node hub(options);
  std::vector<std::unique_ptr<Node>> others;
  std::vector<PeerId> peers;
  std::vector<RemoteRegion> memory;
  for (int i = 0; i < 3; ++i) {
    others.push_back(std::make_unique<Node>(options_of(loopback, "other" + std::to_string(i))));
    peers.push_back(*hub.engine().connect(others.back()->engine().address(), kSoon));
    memory.push_back(*hub.engine().lookup(peers.back(), "memory", kSoon));
  }
  for (std::uint64_t round = 1; round <= 100; ++round) {
    hub.words()[0] = round;
    TransferId last{};
    std::vector<TransferId> ids;
    for (std::size_t step = 0; step < 6; ++step) {
      // Write the round to one peer, then read it back into the next word: wrong order would carry an old round.
      const Extent out{{hub.region().id, step * 8, 8}, {memory[step % 3].id, 64}};
      const Extent back{{hub.region().id, step * 8 + 8, 8}, {memory[step % 3].id, 64}};
      ids.push_back(*hub.engine().write(peers[step % 3], out, after(last)));
      ids.push_back(*hub.engine().read(peers[step % 3], back, after(ids.back())));
      last = ids.back();
    }
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) ASSERT_TRUE(finish(hub.engine(), *id).status);
    EXPECT_EQ(hub.words()[6], round);
  }
}

TEST(NoOrder, WhatFollowsAFailureFailsAndMovesNothing) {
  Cluster cluster;
  auto& a = cluster.add({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  a.data()[0] = 9;
  const std::uint64_t near_index[] = {0}, far_index[] = {Cluster::kBytes};
  const Paged outside{a.region.id, road.memory.id, 64, 1, 1, near_index, far_index};
  const auto first = a.engine->write(road.peer, outside);
  const auto second = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 1), after(*first));
  const auto third = a.engine->write(road.peer, Cluster::extent(a, road, 0, 1, 1), after(*second));
  EXPECT_EQ(cluster.finish(a, third).status.code(), ErrorCode::dependency_failed);
  EXPECT_EQ(cluster.finish(a, second).status.code(), ErrorCode::dependency_failed);
  EXPECT_EQ(cluster.finish(a, first).status.code(), ErrorCode::out_of_range);
  const auto late = a.engine->write(road.peer, Cluster::extent(a, road, 0, 2, 1), after(*first));
  EXPECT_EQ(cluster.finish(a, late).status.code(), ErrorCode::dependency_failed) << "known also after its end";
  EXPECT_EQ(b.data()[0] + b.data()[1] + b.data()[2], 0);
}

TEST(NoOrder, CancellingTheFirstFailsTheSecond) {
  Pair pair;
  const auto first = pair.left.engine().receive(pair.to_right, 5, {pair.left.region().id, 0, 8});
  const auto second = pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8), after(*first));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(pair.left.engine().wait(*second, Timeout(2000)).status().code(), ErrorCode::timed_out);
  ASSERT_TRUE(pair.left.engine().cancel(*first, kSoon));
  EXPECT_EQ(finish(pair.left.engine(), second).status.code(), ErrorCode::dependency_failed);
}

// A dependent transfer that ends while it waits affects neither the others nor the next user of its slot.
TEST(NoOrder, ACancelledDependentTakesNoOtherWithIt) {
  for (const bool first_ok : {true, false}) {
    Pair pair;
    Engine& left = pair.left.engine();
    const PeerId to_left = pair.to_left();
    const auto first = left.receive(pair.to_right, 5, {pair.left.region().id, 0, 8});
    const auto gate = left.receive(pair.to_right, 6, {pair.left.region().id, 0, 8});
    std::vector<TransferId> dependents;
    for (int i = 0; i < 3; ++i) dependents.push_back(*left.write(pair.to_right, pair.extent(0, 0, 8), after(*first)));
    for (const std::size_t ends : {std::size_t{1}, std::size_t{2}}) {
      ASSERT_TRUE(left.cancel(dependents[ends], kSoon));
      EXPECT_EQ(finish(left, dependents[ends]).status.code(), ErrorCode::cancelled);
    }
    // The next users of the two slots wait for something else.
    const auto other = left.write(pair.to_right, pair.extent(0, 8, 8), after(*gate));
    const auto another = left.write(pair.to_right, pair.extent(0, 8, 8), after(*gate));
    if (first_ok) {
      EXPECT_TRUE(
          finish(pair.right.engine(), pair.right.engine().send(to_left, 5, {pair.right.region().id, 0, 8})).status);
    } else {
      ASSERT_TRUE(left.cancel(*first, kSoon));
    }
    EXPECT_EQ(finish(left, dependents[0]).status.code(), first_ok ? ErrorCode::ok : ErrorCode::dependency_failed);
    EXPECT_EQ(left.wait(*other, Timeout(2000)).status().code(), ErrorCode::timed_out)
        << "it was started by another's end";
    ASSERT_TRUE(left.cancel(*gate, kSoon));
    EXPECT_EQ(finish(left, other).status.code(), ErrorCode::dependency_failed);
    EXPECT_EQ(finish(left, another).status.code(), ErrorCode::dependency_failed);
  }
}

TEST(NoOrder, AChainOfFailuresMayBeLong) {
  constexpr std::uint32_t kLength = 100'000;
  EngineOptions options;
  options.max_transfers = kLength + 1;
  Pair pair(options);
  Engine& left = pair.left.engine();
  std::vector<TransferId> chain{*left.receive(pair.to_right, 5, {pair.left.region().id, 0, 8})};
  while (chain.size() <= kLength)
    chain.push_back(*left.write(pair.to_right, pair.extent(0, 0, 8), after(chain.back())));
  ASSERT_TRUE(left.cancel(chain.front(), kSoon));
  EXPECT_EQ(finish(left, chain.back()).status.code(), ErrorCode::dependency_failed);
}

TEST(NoOrder, UrgentTransfersPassThoseThatWaitForRoom) {
  Cluster cluster;
  NicDevice narrow = nic(100'000'000);
  narrow.device.capabilities.queue_depth = 2;
  auto& a = cluster.add({narrow});
  auto& b = cluster.add({narrow});
  const auto road = cluster.connect(a, b);
  std::vector<TransferId> bulk;
  RequestOptions options;
  options.priority = Priority::bulk;
  for (int i = 0; i < 50; ++i)
    bulk.push_back(*a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 4096), options));
  options.priority = Priority::urgent;
  const auto urgent = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 8), options);
  EXPECT_TRUE(cluster.finish(a, urgent).status);
  std::size_t done = 0;
  for (const TransferId id : bulk) done += a.engine->wait(id, Timeout(0)).is_ok();
  EXPECT_LT(done, 10u);
  cluster.run(kSecond);
}

}  // namespace
}  // namespace fairway::promises
