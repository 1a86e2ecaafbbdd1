// Engine::fd() in an event loop: it wakes for each thing that may have come, counters too, and not again for what was
// taken.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

#include "fairway/engine.h"
#include "fairway/loopback.h"

namespace fairway {
namespace {

constexpr Timeout kAWhile = std::chrono::seconds(20);

class Descriptor : public testing::TestWithParam<Progress> {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.loopback = make_loopback();
    options.transports = {"loopback"};
    sender_.emplace(*Engine::open(options));
    options.progress = GetParam();
    target_.emplace(*Engine::open(options));
    // With Progress::caller somebody steps the target while it is connected to.
    std::atomic<bool> connected{false};
    std::thread steps([&] {
      while (!connected) (void)target_->wait_notification(std::chrono::milliseconds(1));
    });
    peer_ = *sender_->connect(target_->address(), kAWhile);
    connected = true;
    steps.join();
    fd_ = target_->fd();
    (void)drain();
    ASSERT_TRUE(back_) << "the target was not told of its peer";
  }
  // Everything there is. Returns how much that was, counters included.
  std::uint64_t drain() {
    std::vector<Completion> completions(8);
    std::vector<Notification> notifications(8);
    std::vector<PeerEvent> events(8);
    for (;;) {
      const std::size_t told = target_->poll_peer_events(events);
      for (std::size_t i = 0; i < told; ++i)
        if (events[i].kind == PeerEvent::Kind::up) back_ = events[i].peer;
      const std::size_t got = told + target_->poll(completions) + target_->poll_notifications(notifications);
      events_ += got;
      if (got == 0) return target_->counter(7);
    }
  }
  bool sleep(int timeout_ms) {
    pollfd interest{fd_, POLLIN, 0};
    return ::poll(&interest, 1, timeout_ms) > 0;
  }

  std::optional<Engine> sender_, target_;
  PeerId peer_, back_;  // the target, at the sender; and the sender, at the target
  int fd_ = -1;
  std::uint64_t events_ = 0;
};

TEST_P(Descriptor, WakesForCountersAtMostTwiceEach) {
  std::vector<std::uint64_t> near(1), far(1);
  const auto near_region = sender_->register_memory(near.data(), 8, Access::none);
  const auto far_region = target_->register_memory(far.data(), 8, Access::all);
  ASSERT_TRUE(near_region && far_region);
  const auto remote = sender_->import_region(peer_, *target_->describe(*far_region));
  ASSERT_TRUE(remote) << remote.status().to_string();
  RequestOptions options;
  options.notify.kind = NotifyKind::counter;
  options.notify.immediate = 7;
  constexpr std::uint64_t kRounds = 50, kEach = 64;
  std::uint64_t wakes = 0, seen = drain();
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::thread writes([&] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const auto id = sender_->write(peer_, Extent{{near_region->id, 0, 8}, {remote->id, 0}}, options);
        EXPECT_TRUE(id && sender_->wait(*id, kAWhile)->status);
      }
    });
    while (seen < round * kEach) {
      ASSERT_TRUE(sleep(20'000)) << "nobody wakes it for counter " << seen;
      ++wakes;
      seen = drain();
    }
    writes.join();
  }
  EXPECT_LE(wakes, 2 * (kRounds * kEach + events_)) << "of " << kRounds * kEach << " counters";
  RecordProperty("wakes", std::to_string(wakes));
  std::printf("[ wakes    ] %llu for %llu counters\n", static_cast<unsigned long long>(wakes),
              static_cast<unsigned long long>(kRounds * kEach));
  if (GetParam() == Progress::threads) {
    (void)drain();
    EXPECT_FALSE(sleep(50)) << "it stays readable though nothing is left";
  }
}

TEST_P(Descriptor, WakesForADeadline) {
  std::vector<std::uint64_t> memory(1);
  const auto region = target_->register_memory(memory.data(), 8, Access::all);
  ASSERT_TRUE(region);
  RequestOptions options;
  options.deadline = std::chrono::milliseconds(50);
  options.deliver = Deliver::to_poll;
  ASSERT_TRUE(target_->receive(back_, 1, {region->id, 0, 8}, options));
  const auto began = std::chrono::steady_clock::now();
  std::vector<Completion> completions(1);
  while (target_->poll(completions) == 0) ASSERT_TRUE(sleep(20'000)) << "nobody wakes it for its deadline";
  EXPECT_EQ(completions[0].status.code(), ErrorCode::deadline_exceeded) << completions[0].status.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1)) << "only something else has woken it";
}

INSTANTIATE_TEST_SUITE_P(Progress, Descriptor, testing::Values(Progress::threads, Progress::caller),
                         [](const auto& each) { return each.param == Progress::threads ? "threads" : "caller"; });

}  // namespace
}  // namespace fairway
