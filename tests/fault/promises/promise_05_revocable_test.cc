// Promise 5, revocable: cancel and deregister report fenced only when no byte can still land in, or be read from, the
// caller's memory. When that cannot be known in time, they report not fenced and by whom. Cases: both under traffic
// from both sides, with the memory reused at once and watched; frames still in flight; frozen peers; transports whose
// peers must agree.
#include <atomic>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nodes.h"
#include "relay.h"

namespace fairway::promises {
namespace {

bool all_are(const std::uint8_t* bytes, std::size_t size, std::uint8_t value) {
  return size == 0 || (*bytes == value && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

TEST(Revocable, MemoryIsTheOwnersAloneOnceDeregisterSaysFenced) {
  Pair pair;
  std::atomic<bool> stop{false};
  std::vector<std::uint8_t> memory(256 * 1024);
  const Region source = *pair.left.engine().register_memory(pair.left.data(), 1 << 20, Access::none);
  std::atomic<std::uint64_t> moved{0};
  std::atomic<std::uint64_t> latest{0};  // a packed RemoteRegionId
  const auto traffic = [&](bool writes) {
    while (!stop) {
      const std::uint64_t packed = latest.load();
      const RemoteRegionId target{static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32)};
      const Extent extent{{source.id, writes ? 0u : 512u * 1024, memory.size()}, {target, 0}};
      const auto id =
          writes ? pair.left.engine().write(pair.to_right, extent) : pair.left.engine().read(pair.to_right, extent);
      if (!id) continue;
      const Completion done = finish(pair.left.engine(), id);
      if (done.status) {
        ++moved;
      } else {
        const ErrorCode code = done.status.code();  // cancelled by the release below
        EXPECT_TRUE(code == ErrorCode::revoked || code == ErrorCode::cancelled) << done.status.to_string();
      }
    }
  };
  std::memset(pair.left.data(), 0x11, 512 * 1024);
  std::thread writer(traffic, true), reader(traffic, false);
  for (int round = 0; round < 60; ++round) {
    auto region = pair.right.engine().register_memory(memory.data(), memory.size(), Access::all);
    ASSERT_TRUE(region);
    auto remote = pair.left.engine().import_region(pair.to_right, *pair.right.engine().describe(*region));
    ASSERT_TRUE(remote);
    latest = std::uint64_t{remote->id.generation} << 32 | remote->id.slot;
    const std::uint64_t before = moved;
    while (moved == before) std::this_thread::yield();
    ASSERT_TRUE(pair.right.engine().deregister(*region, kSoon));
    const auto mine = static_cast<std::uint8_t>(0x80 + round);
    std::memset(memory.data(), mine, memory.size());
    for (int look = 0; look < 20; ++look)
      ASSERT_TRUE(all_are(memory.data(), memory.size(), mine)) << "a byte landed late";
    EXPECT_TRUE(pair.left.engine().release(*remote));
  }
  stop = true;
  writer.join();
  reader.join();
}

TEST(Revocable, TheInitiatorsOwnMemoryIsNeitherReadNorWrittenAfterCancel) {
  Pair pair;
  std::memset(pair.right.data(), 0x77, 1 << 20);
  for (int round = 0; round < 100; ++round) {
    std::memset(pair.left.data(), 0x11, 1 << 20);
    const bool writes = round % 2 == 0;
    const Extent extent = pair.extent(0, 0, 1 << 20);
    const auto id =
        writes ? pair.left.engine().write(pair.to_right, extent) : pair.left.engine().read(pair.to_right, extent);
    ASSERT_TRUE(id);
    if (round % 3 == 0) std::this_thread::yield();
    const auto cancelled = pair.left.engine().cancel(*id, kSoon);
    ASSERT_TRUE(cancelled) << cancelled.status().to_string();
    ASSERT_TRUE(cancelled->fenced);
    std::memset(pair.left.data(), 0x99, 1 << 20);  // reuse
    for (int look = 0; look < 3; ++look) ASSERT_TRUE(all_are(pair.left.data(), 1 << 20, 0x99));
    const Completion done = finish(pair.left.engine(), id);
    EXPECT_TRUE(done.status || done.status.code() == ErrorCode::cancelled) << done.status.to_string();
    if (writes && !done.status && done.status.effect() == Effect::not_applied && round == 0) {
      EXPECT_TRUE(all_are(pair.right.data(), 1 << 20, 0x77));
    }
    if (writes) {
      ASSERT_EQ(std::count(pair.right.data(), pair.right.data() + (1 << 20), 0x99), 0) << "read after the fence";
      std::memset(pair.right.data(), 0x77, 1 << 20);
    }
  }
}

// Frames still in flight when the call returns must not land: the memory gets a new pattern at once and is watched for
// long.
TEST(Revocable, LateFramesLandInNothingThatWasFenced) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    NicDevice device = nic(500'000'000);
    device.nature.latency_max = 500 * kMicrosecond;
    device.nature.lose_per_mille = 100;
    device.device.capabilities.max_slice_bytes = 2048;
    auto& a = cluster.add({device, device});
    auto& b = cluster.add({device, device});
    const auto road = cluster.connect(a, b);
    std::memset(a.data(), 0x11, Cluster::kBytes);
    const bool target_side = seed % 2 == 0;
    const bool reads = seed % 4 < 2;
    std::vector<TransferId> ids;
    for (int i = 0; i < 8; ++i) {
      const Extent extent = Cluster::extent(a, road, 0, 0, 16'000);
      ids.push_back(*(reads ? a.engine->read(road.peer, extent) : a.engine->write(road.peer, extent)));
    }
    cluster.run(seed * 7 % 300 * kMicrosecond);
    if (seed % 3 == 0) cluster.fabric().break_between(*a.host, *b.host);
    Cluster::Node& owner = target_side ? b : a;
    ASSERT_TRUE(owner.engine->deregister(owner.region, Cluster::kWithin));
    std::memset(owner.data(), 0x99, Cluster::kBytes);
    for (int i = 0; i < 300; ++i) {
      cluster.run(300 * kMicrosecond);
      ASSERT_TRUE(all_are(owner.data(), Cluster::kBytes, 0x99)) << "a byte landed after deregister said fenced";
    }
    if (!target_side && !reads) {
      ASSERT_EQ(std::count(b.data(), b.data() + Cluster::kBytes, 0x99), 0) << "read after deregister said fenced";
    }
    for (const TransferId id : ids) (void)cluster.finish(a, id);
  }
}

TEST(Revocable, CancelTellsWhatTheFarSideSaw) {
  Pair pair;
  const auto waiting = pair.left.engine().receive(pair.to_right, 3, {pair.left.region().id, 0, 8});
  RequestOptions options;
  options.after = *waiting;
  const auto second = pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8), options);
  const auto nothing = pair.left.engine().cancel(*second, kSoon);
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->far_side, Cancelled::Far::nothing);
  EXPECT_EQ(finish(pair.left.engine(), second).status.effect(), Effect::not_applied);
  EXPECT_TRUE(pair.left.engine().cancel(*waiting, kSoon)->fenced);
  EXPECT_EQ(pair.left.engine().cancel(*second, kSoon).status().code(), ErrorCode::not_found);
}

TEST(Revocable, AllocatedMemoryIsFreedByDeregister) {
  Pair pair;
  for (int round = 0; round < 300; ++round) {
    auto region = pair.right.engine().allocate(1 << 20, Access::all);
    ASSERT_TRUE(region) << region.status().to_string();
    EXPECT_EQ(*region->address, std::byte{0});
    auto remote = pair.left.engine().import_region(pair.to_right, *pair.right.engine().describe(*region));
    ASSERT_TRUE(remote);
    const Extent extent{{pair.left.region().id, 0, 4096}, {remote->id, 0}};
    EXPECT_TRUE(finish(pair.left.engine(), pair.left.engine().write(pair.to_right, extent)).status);
    ASSERT_TRUE(pair.right.engine().deregister(*region, kSoon));
    EXPECT_TRUE(pair.left.engine().release(*remote));
  }
  EXPECT_EQ(pair.right.engine().metrics().regions, 1u);
}

}  // namespace
}  // namespace fairway::promises
