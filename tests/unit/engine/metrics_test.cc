#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "two_engines.h"

namespace fairway {
namespace {

class OfMetrics : public TwoEngines {};

TEST_P(OfMetrics, CountWhatHasEndedOnceItsCompletionIsThere) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 100'000)), *left_).status);
  RequestOptions late;
  late.deadline = Timeout(0);
  EXPECT_FALSE(finish(left_->write(right_peer_, extent(0, 0, 64), late), *left_).status);
  const Metrics metrics = left_->metrics();
  ASSERT_EQ(metrics.peers.size(), 1u);
  EXPECT_EQ(metrics.peers[0].peer, right_peer_);
  EXPECT_EQ(metrics.peers[0].transfers_ok, 10u);
  EXPECT_EQ(metrics.peers[0].transfers_failed, 1u);
  EXPECT_EQ(metrics.peers[0].bytes, 1'000'000u);
  EXPECT_EQ(metrics.peers[0].in_flight, 0u);
  EXPECT_EQ(metrics.peers[0].latency.count, 10u);
  std::uint64_t moved = 0;
  for (const LinkMetrics& link : metrics.links) {
    EXPECT_TRUE(link.up);
    EXPECT_EQ(link.in_flight, 0u);
    moved += link.bytes_out;
  }
  EXPECT_GE(moved, 1'000'000u);
}

// A worker that a callback holds answers nobody.
TEST_P(OfMetrics, WaitForNoWorker) {
  struct Held {
    std::atomic<bool> inside{false}, go{false}, left{false};
  } held;
  RequestOptions options;
  options.deliver = Deliver::to_callback;
  options.user_data = &held;
  options.callback = [](const Completion&, void* user) {
    auto& self = *static_cast<Held*>(user);
    self.inside = true;
    while (!self.go) std::this_thread::yield();
    self.left = true;
  };
  ASSERT_TRUE(left_->write(right_peer_, extent(0, 0, 100'000), options));
  std::thread steps([&] {
    while (!held.inside) (void)left_->poll({});
  });
  while (!held.inside) std::this_thread::yield();
  const Metrics metrics = left_->metrics();
  ASSERT_EQ(metrics.peers.size(), 1u);
  EXPECT_EQ(metrics.peers[0].transfers_ok, 1u);
  EXPECT_FALSE(metrics.transports.empty());
  held.go = true;
  steps.join();
  while (!held.left) std::this_thread::yield();  // it looks at what is on this stack
}

TEST_P(OfMetrics, MayBeTakenWhilePeersComeAndGoAndTheEngineCloses) {
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> taken{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i)
    readers.emplace_back([&] {
      std::uint64_t most = 0;
      while (!over) {
        const Metrics metrics = right_->metrics();
        ++taken;
        EXPECT_LE(metrics.peers.size(), 8u);
        for (const PeerMetrics& peer : metrics.peers) EXPECT_FALSE(peer.name.empty());
        for (const LinkMetrics& link : metrics.links)
          EXPECT_TRUE(link.name.empty() || link.name.find("/") != std::string::npos);
        for (const PeerMetrics& peer : metrics.peers)
          if (peer.name.starts_with("left")) most = std::max(most, peer.notifications);
      }
      EXPECT_GE(most, 1u);
    });
  for (int round = 0; round < 10; ++round) {
    RequestOptions told;
    told.notify = notify_event(1);
    EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 64), told), *left_).status);
    EngineOptions options;
    options.name = "guest";
    Engine guest = open(options);
    EXPECT_TRUE(guest.connect(right_->address(), kSoon));
    const std::uint64_t before = taken;
    while (taken < before + 4) std::this_thread::yield();
  }
  right_->close();
  const std::uint64_t before = taken;
  while (taken < before + 4) std::this_thread::yield();
  over = true;
  for (std::thread& each : readers) each.join();
}

INSTANTIATE_TEST_SUITE_P(Progress, OfMetrics, testing::Values(Progress::threads, Progress::caller));

}  // namespace
}  // namespace fairway
