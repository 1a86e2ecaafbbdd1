// Promise 5, revocable, when nobody can know in time: a NIC stalls with slices that it was given. So cancel and
// deregister report not fenced and by whom, and the memory must not be reused. Once the NIC continues they report
// fenced; from then on no byte lands in the memory or is read from it.
#include <algorithm>
#include <cstring>

#include "cluster.h"

namespace fairway::promises {
namespace {

constexpr Time kHeld = 50 * kMillisecond;
constexpr Timeout kShort = std::chrono::milliseconds(5);

bool are_all(const std::uint8_t* bytes, std::size_t size, std::uint8_t value) {
  return std::all_of(bytes, bytes + size, [value](std::uint8_t byte) { return byte == value; });
}

// One transfer of 16 KB whose slices are, or will be, held at one end.
struct HeldByNic {
  HeldByNic(std::uint64_t seed, bool reads, bool at_target) : cluster(seed) {
    std::memset(a.data(), 0x11, Cluster::kBytes);
    std::memset(b.data(), 0x22, Cluster::kBytes);
    const Extent extent = Cluster::extent(a, road, 0, 0, 16'000);
    id = *(reads ? a.engine->read(road.peer, extent) : a.engine->write(road.peer, extent));
    cluster.run(5 * kMicrosecond);
    cluster.fabric().hold(at_target ? *b.host : *a.host, cluster.simulation().now() + kHeld);
    cluster.run(20 * kMicrosecond);
  }
  // Reuses the memory: its new content must stay, and must not appear at the peer.
  void reuse_and_watch(bool reads) {
    std::memset(a.data(), 0x99, Cluster::kBytes);
    for (int i = 0; i < 200; ++i) {
      cluster.run(kMillisecond);
      ASSERT_TRUE(are_all(a.data(), Cluster::kBytes, 0x99)) << "a byte landed after it was said to be fenced";
    }
    if (!reads) {
      EXPECT_EQ(std::count(b.data(), b.data() + Cluster::kBytes, 0x99), 0) << "read after it was said to be fenced";
    }
  }

  Cluster cluster;
  Cluster::Node& a = cluster.add({nic(100'000'000)});
  Cluster::Node& b = cluster.add({nic(100'000'000)});
  Cluster::Road road = cluster.connect(a, b);
  TransferId id;
};

TEST(RevocableAtNics, ACancelThatCannotKnowInTimeNamesTheHolderAndALaterOneIsFenced) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const bool reads : {false, true})
      for (const bool at_target : {false, true}) {
        SCOPED_TRACE("seed " + std::to_string(seed) + (reads ? " read" : " write") +
                     (at_target ? " at the target" : ""));
        HeldByNic held(seed, reads, at_target);
        const auto first = held.a.engine->cancel(held.id, kShort);
        ASSERT_TRUE(first) << first.status().to_string();
        // Only the initiator's end decides whether its memory is still in use.
        if (at_target) {
          EXPECT_TRUE(first->fenced);
          held.reuse_and_watch(reads);
          continue;
        }
        ASSERT_FALSE(first->fenced);
        EXPECT_EQ(first->held_by, "n1");
        EXPECT_EQ(held.a.engine->wait(held.id, Timeout(0)).status().code(), ErrorCode::timed_out);
        const auto second = held.a.engine->cancel(held.id, Cluster::kWithin);
        ASSERT_TRUE(second) << second.status().to_string();
        EXPECT_TRUE(second->fenced);
        EXPECT_EQ(second->held_by, "");
        held.reuse_and_watch(reads);
        EXPECT_TRUE(held.a.engine->wait(held.id, Timeout(0))) << "it completes once";
      }
}

TEST(RevocableAtNics, ADeregisterThatCannotKnowInTimeSaysSoAndByWhom) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const bool reads : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (reads ? " read" : " write"));
      HeldByNic held(seed, reads, false);
      const Status first = held.a.engine->deregister(held.a.region, kShort);
      ASSERT_EQ(first.code(), ErrorCode::not_fenced) << first.to_string();
      EXPECT_NE(first.message().find("n1"), std::string::npos) << first.to_string();
      EXPECT_EQ(held.a.engine->wait(held.id, Timeout(0)).status().code(), ErrorCode::timed_out);
      // The transfer ends by itself: it completes when nothing accesses the memory any more.
      const auto done = held.a.engine->wait(held.id, Cluster::kWithin);
      ASSERT_TRUE(done) << done.status().to_string();
      EXPECT_EQ(done->status.code(), ErrorCode::cancelled) << done->status.to_string();
      held.reuse_and_watch(reads);
    }
}

TEST(RevocableAtNics, ADeregisterThatMayWaitForTheHoldIsFenced) {
  HeldByNic held(1, false, false);
  ASSERT_TRUE(held.a.engine->deregister(held.a.region, Cluster::kWithin));
  held.reuse_and_watch(false);
}

}  // namespace
}  // namespace fairway::promises
