// Requests of extreme length, in blocks or in work: the engine accepts them, and they cost others only their share.
// Cases: the largest counts of each layout, empty and not; links with and without writes; checksum and notification;
// requests submitted later; cancel().
#include <vector>

#include "cluster.h"

namespace fairway::promises {
namespace {

constexpr std::uint64_t kMost = ~std::uint64_t{0};

class Endless : public testing::TestWithParam<bool> {
 protected:
  static NicDevice device() {
    NicDevice made = GetParam() ? message_nic() : nic();
    made.device.capabilities.queue_depth = 4;  // room becomes free piece by piece
    return made;
  }
  Strided blocks(std::uint64_t length, std::uint64_t count) const {
    return {Cluster::extent(a, road, 0, 0, length), 0, 0, count};
  }

  Cluster cluster;
  Cluster::Node& a = cluster.add({device()});
  Cluster::Node& b = cluster.add({device()});
  Cluster::Road road = cluster.connect(a, b);
};

TEST_P(Endless, EmptyBlocksCostNothing) {
  RequestOptions options;
  options.checksum = true;
  options.notify.kind = NotifyKind::counter;
  options.notify.immediate = 3;
  const auto write = a.engine->write(road.peer, blocks(0, kMost), options);
  const auto read = a.engine->read(road.peer, blocks(0, kMost));
  EXPECT_TRUE(cluster.finish(a, write).status);
  EXPECT_TRUE(cluster.finish(a, read).status);
  EXPECT_TRUE(cluster.run_until(kSecond, [&] { return b.engine->counter(3) == 1; }));
  std::vector<Extent> list(100'000, Cluster::extent(a, road, 0, 0, 0));
  list.push_back(Cluster::extent(a, road, 0, 0, 8));
  const auto listed = a.engine->write(road.peer, std::span<const Extent>(list), options);
  const Completion done = cluster.finish(a, listed);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(done.bytes, 8u);
}

TEST_P(Endless, BlocksWithoutEndLeaveOthersTheirTurns) {
  const auto endless = a.engine->write(road.peer, blocks(1, kMost));
  ASSERT_TRUE(endless);
  cluster.run(10 * kMillisecond);
  const Time before = cluster.simulation().now();
  for (int i = 0; i < 10; ++i) {
    const auto later = a.engine->write(road.peer, Cluster::extent(a, road, 4096, 4096, 4096));
    const auto completion = a.engine->wait(*later, std::chrono::seconds(1));
    ASSERT_TRUE(completion) << "a later transfer waits behind one without end";
    EXPECT_TRUE(completion->status);
  }
  EXPECT_LT(cluster.simulation().now() - before, kSecond);
  const auto cancelled = a.engine->cancel(*endless, std::chrono::seconds(1));
  ASSERT_TRUE(cancelled);
  EXPECT_TRUE(cancelled->fenced);
  EXPECT_EQ(cluster.finish(a, endless).status.code(), ErrorCode::cancelled);
}

INSTANTIATE_TEST_SUITE_P(Links, Endless, testing::Bool(),
                         [](const auto& each) { return each.param ? "messages" : "writes"; });

// The link repeatedly comes up and fails at once.
TEST(Survives, ALinkThatFailsAgainAndAgainBacksOff) {
  Cluster cluster;
  EngineOptions options;
  options.peer_timeout = std::chrono::milliseconds(8000);  // the longest back-off is a second
  auto& a = cluster.add({nic()}, options);
  auto& b = cluster.add({nic()}, options);
  (void)cluster.connect(a, b);
  std::vector<PeerEvent> events(16);
  int ups = 0;
  for (const Time end = cluster.simulation().now() + 10 * kSecond; cluster.simulation().now() < end;) {
    cluster.run(kMillisecond);
    const std::size_t count = a.engine->poll_peer_events(events);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NE(events[i].kind, PeerEvent::Kind::down) << events[i].reason.to_string();
      if (events[i].kind != PeerEvent::Kind::link_up) continue;
      ++ups;
      cluster.fabric().break_between(*a.host, *b.host);
    }
  }
  EXPECT_GE(ups, 5) << "it does not come back";
  EXPECT_LE(ups, 25) << "it is tried again as fast as ever";
  // After it has worked for as long as the bound, it is trusted again.
  cluster.run(12 * kSecond);
  while (a.engine->poll_peer_events(events) > 0) {
  }
  cluster.fabric().break_between(*a.host, *b.host);
  EXPECT_TRUE(cluster.run_until(200 * kMillisecond, [&] {
    const std::size_t count = a.engine->poll_peer_events(events);
    for (std::size_t i = 0; i < count; ++i)
      if (events[i].kind == PeerEvent::Kind::link_up) return true;
    return false;
  }));
}

}  // namespace
}  // namespace fairway::promises
