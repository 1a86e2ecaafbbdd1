#include "fairway/engine.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/loopback.h"

namespace fairway {
namespace {

constexpr Timeout kSoon = std::chrono::seconds(5);

// Two engines of one process that know each other, each with 4 MiB for the other.
class TwoEngines : public testing::TestWithParam<Progress> {
 protected:
  static constexpr std::size_t kBytes = 4u << 20;

  void SetUp() override {
    EngineOptions options;
    options.loopback = make_loopback();
    options.progress = GetParam();
    options.name = "left";
    left_.emplace(open(options));
    options.name = "right";
    options.progress = Progress::threads;
    right_.emplace(open(options));
    auto peer = left_->connect(right_->address(), kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
    right_peer_ = *peer;
    near_.resize(kBytes);
    far_.resize(kBytes);
    std::iota(near_.begin(), near_.end(), std::uint8_t{1});
    auto near_region = left_->register_memory(near_.data(), kBytes, Access::all);
    auto far_region = right_->register_memory(far_.data(), kBytes, Access::all);
    ASSERT_TRUE(near_region && far_region);
    near_region_ = *near_region;
    far_region_ = *far_region;
    ASSERT_TRUE(right_->publish("far", far_region_));
    auto remote = left_->lookup(right_peer_, "far", kSoon);
    ASSERT_TRUE(remote) << remote.status().to_string();
    remote_ = *remote;
  }
  static Engine open(const EngineOptions& options) {
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine) << engine.status().to_string();
    return std::move(engine).value();
  }
  Extent extent(std::uint64_t local, std::uint64_t remote, std::uint64_t length) const {
    return {{near_region_.id, local, length}, {remote_.id, remote}};
  }
  Completion finish(const Result<TransferId>& id, Engine& engine) {
    EXPECT_TRUE(id) << id.status().to_string();
    if (!id) return {};
    auto completion = engine.wait(*id, kSoon);
    EXPECT_TRUE(completion) << completion.status().to_string();
    return completion ? *completion : Completion{};
  }

  std::optional<Engine> left_, right_;
  PeerId right_peer_;
  std::vector<std::uint8_t> near_, far_;
  Region near_region_, far_region_;
  RemoteRegion remote_;
};

TEST_P(TwoEngines, WriteMovesEveryByte) {
  const Completion done = finish(left_->write(right_peer_, extent(3, 17, 3u << 20)), *left_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(done.bytes, 3u << 20);
  EXPECT_EQ(0, std::memcmp(near_.data() + 3, far_.data() + 17, 3u << 20));
  EXPECT_EQ(far_[16], 0);
  EXPECT_EQ(far_[17 + (3u << 20)], 0);
}

TEST_P(TwoEngines, ReadMovesEveryByte) {
  std::iota(far_.begin(), far_.end(), std::uint8_t{99});
  const Completion done = finish(left_->read(right_peer_, extent(5, 1, 1000001)), *left_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(0, std::memcmp(near_.data() + 5, far_.data() + 1, 1000001));
}

TEST_P(TwoEngines, NotificationComesAfterTheBytesWithItsMessage) {
  const char text[] = "page 7 is there";
  RequestOptions options;
  options.notify = notify_event(7, std::as_bytes(std::span(text)));
  const Completion done = finish(left_->write(right_peer_, extent(0, 0, 4096), options), *left_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  ASSERT_TRUE(right_->wait_notification(kSoon));
  std::vector<Notification> got(2);
  ASSERT_EQ(right_->poll_notifications(got), 1u);
  EXPECT_EQ(got[0].immediate, 7u);
  EXPECT_EQ(got[0].message_bytes, sizeof(text));
  EXPECT_EQ(0, std::memcmp(got[0].message, text, sizeof(text)));
  EXPECT_EQ(0, std::memcmp(near_.data(), far_.data(), 4096));
}

TEST_P(TwoEngines, MoreNotificationsThanCreditsWaitForTheirTurn) {
  RequestOptions options;
  options.notify.kind = NotifyKind::event;
  std::vector<TransferId> ids;
  for (std::uint32_t i = 0; i < 500; ++i) {
    options.notify.immediate = i;
    auto id = left_->write(right_peer_, extent(0, 0, 8), options);
    ASSERT_TRUE(id) << id.status().to_string();
    ids.push_back(*id);
  }
  std::vector<bool> seen(500);
  std::vector<Notification> got(64);
  std::size_t total = 0;
  std::thread waiter([&] {
    for (const TransferId id : ids) EXPECT_TRUE(finish(id, *left_).status);
  });
  while (total < 500 && right_->wait_notification(kSoon)) {
    const std::size_t count = right_->poll_notifications(got);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_FALSE(seen[got[i].immediate]);
      seen[got[i].immediate] = true;
    }
    total += count;
  }
  waiter.join();
  EXPECT_EQ(total, 500u);
}

TEST_P(TwoEngines, CountersCountAndWaitersSeeThem) {
  RequestOptions options;
  options.notify = notify_counter(42);
  std::vector<TransferId> ids;
  for (int i = 0; i < 64; ++i) ids.push_back(*left_->write(right_peer_, extent(0, 0, 64), options));
  std::thread left([&] {
    for (const TransferId id : ids) EXPECT_TRUE(finish(id, *left_).status);
  });
  EXPECT_TRUE(right_->wait_counter(42, 64, kSoon));
  left.join();
  EXPECT_EQ(right_->counter(42), 64u);
  EXPECT_EQ(right_->wait_counter(42, 65, Timeout(1000)).code(), ErrorCode::timed_out);
}

TEST_P(TwoEngines, SignalsAndAtomicsChangeTheWord) {
  auto* word = reinterpret_cast<std::uint64_t*>(far_.data() + 4096);
  *word = 5;
  Completion done = finish(left_->fetch_add(right_peer_, {remote_.id, 4096}, 10), *left_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(done.old_value, 5u);
  done = finish(left_->compare_swap(right_peer_, {remote_.id, 4096}, 15, 100), *left_);
  EXPECT_EQ(done.old_value, 15u);
  done = finish(left_->compare_swap(right_peer_, {remote_.id, 4096}, 15, 1), *left_);
  EXPECT_EQ(done.old_value, 100u);
  RequestOptions options;
  options.notify = add_to_signal({remote_.id, 4096}, 11);
  EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 100), options), *left_).status);
  EXPECT_EQ(std::atomic_ref(*word).load(), 111u);
}

TEST_P(TwoEngines, PagesMoveToTheirPlaces) {
  constexpr std::uint64_t kPage = 512;
  std::vector<std::uint64_t> from(kBytes / kPage), to(kBytes / kPage);
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = i;
    to[i] = from.size() - 1 - i;
  }
  const Paged pages{near_region_.id, remote_.id, kPage, kPage, kPage, from, to};
  const Completion done = finish(left_->write(right_peer_, pages), *left_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  for (std::size_t i = 0; i < from.size(); ++i)
    ASSERT_EQ(0, std::memcmp(near_.data() + from[i] * kPage, far_.data() + to[i] * kPage, kPage)) << i;
}

TEST_P(TwoEngines, SmallAndLargeMessagesMatchByTagInOrder) {
  std::vector<std::uint8_t> into(kBytes);
  auto into_region = right_->register_memory(into.data(), into.size(), Access::none);
  ASSERT_TRUE(into_region);
  std::vector<PeerEvent> events(8);
  PeerId left_peer;
  while (!left_peer) {
    const std::size_t count = right_->poll_peer_events(events);
    for (std::size_t i = 0; i < count; ++i)
      if (events[i].kind == PeerEvent::Kind::up) left_peer = events[i].peer;
  }
  auto s1 = left_->send(right_peer_, 1, {near_region_.id, 0, 100});
  auto s2 = left_->send(right_peer_, 2, {near_region_.id, 200, 2u << 20});
  auto s3 = left_->send(right_peer_, 1, {near_region_.id, 100, 50});
  auto r2 = right_->receive(left_peer, 2, {into_region->id, 1000, 3u << 20});
  auto r1 = right_->receive(left_peer, 1, {into_region->id, 0, 100});
  auto r3 = right_->receive(left_peer, 1, {into_region->id, 100, 10});
  std::thread left([&] {
    EXPECT_TRUE(finish(s1, *left_).status);
    EXPECT_TRUE(finish(s2, *left_).status);
    EXPECT_EQ(finish(s3, *left_).status.code(), ErrorCode::truncated);
  });
  Completion done = finish(r1, *right_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(done.bytes, 100u);
  done = finish(r2, *right_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(done.bytes, 2u << 20);
  EXPECT_EQ(finish(r3, *right_).status.code(), ErrorCode::truncated);
  left.join();
  EXPECT_EQ(0, std::memcmp(into.data(), near_.data(), 100));
  EXPECT_EQ(0, std::memcmp(into.data() + 1000, near_.data() + 200, 2u << 20));
}

TEST_P(TwoEngines, ChecksumComparesBothMemories) {
  RequestOptions options;
  options.checksum = true;
  const Completion done = finish(left_->write(right_peer_, extent(0, 8, 3u << 20), options), *left_);
  EXPECT_TRUE(done.status) << done.status.to_string();
}

TEST_P(TwoEngines, BeyondTheRegionIsRefusedBeforeAnythingMoves) {
  EXPECT_EQ(left_->write(right_peer_, extent(0, kBytes - 10, 11)).status().code(), ErrorCode::out_of_range);
  EXPECT_EQ(left_->write(right_peer_, extent(kBytes, 0, 1)).status().code(), ErrorCode::out_of_range);
  EXPECT_EQ(left_->write({7, 7}, extent(0, 0, 1)).status().code(), ErrorCode::stale_incarnation);
}

TEST_P(TwoEngines, DeregisteredMemoryIsFencedAndRefused) {
  std::vector<TransferId> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(*left_->write(right_peer_, extent(0, 0, kBytes)));
  EXPECT_TRUE(right_->deregister(far_region_, kSoon));
  std::vector<std::uint8_t> copy = far_;
  for (const TransferId id : ids) {
    const Completion done = finish(id, *left_);
    if (!done.status) {
      EXPECT_EQ(done.status.code(), ErrorCode::revoked) << done.status.to_string();
    }
  }
  EXPECT_EQ(copy, far_);
  EXPECT_TRUE(left_->deregister(near_region_, kSoon));
  EXPECT_EQ(left_->write(right_peer_, extent(0, 0, 8)).status().code(), ErrorCode::revoked);
}

TEST_P(TwoEngines, CancelledTransfersEndOnce) {
  std::vector<TransferId> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(*left_->write(right_peer_, extent(0, 0, kBytes)));
  for (const TransferId id : ids) {
    auto cancelled = left_->cancel(id, kSoon);
    ASSERT_TRUE(cancelled) << cancelled.status().to_string();
    EXPECT_TRUE(cancelled->fenced);
    const Completion done = finish(id, *left_);
    if (!done.status) {
      EXPECT_EQ(done.status.code(), ErrorCode::cancelled) << done.status.to_string();
    }
    EXPECT_EQ(left_->wait(id, kSoon).status().code(), ErrorCode::not_found);
  }
}

TEST_P(TwoEngines, AfterStartsOnlyWhenTheFirstIsVisible) {
  RequestOptions options;
  auto first = left_->write(right_peer_, extent(0, 0, kBytes));
  options.after = *first;
  auto second = left_->write(right_peer_, extent(100, 0, 100), options);
  EXPECT_TRUE(finish(second, *left_).status);
  EXPECT_TRUE(finish(first, *left_).status);
  EXPECT_EQ(0, std::memcmp(far_.data(), near_.data() + 100, 100));
}

TEST_P(TwoEngines, ClosingTheFarEngineEndsEveryTransfer) {
  std::vector<TransferId> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(*left_->write(right_peer_, extent(0, 0, kBytes)));
  right_->close();
  for (const TransferId id : ids) (void)finish(id, *left_);
  const auto late = left_->write(right_peer_, extent(0, 0, 8));
  EXPECT_FALSE(late && finish(late, *left_).status);
}

TEST_P(TwoEngines, ExplainSaysTheRouteAndWhatItReached) {
  Request request;
  request.peer = right_peer_;
  request.layout = extent(0, 0, kBytes);
  auto planned = left_->explain(request);
  ASSERT_TRUE(planned) << planned.status().to_string();
  EXPECT_NE(planned->text().find("used:     loopback/"), std::string::npos) << planned->text();
  auto id = left_->write(right_peer_, extent(0, 0, kBytes));
  EXPECT_TRUE(finish(id, *left_).status);
  auto past = left_->explain(*id);
  ASSERT_TRUE(past) << past.status().to_string();
  EXPECT_EQ(past->bytes_done, kBytes);
  EXPECT_EQ(past->state, "ok");
  const Metrics metrics = left_->metrics();
  ASSERT_EQ(metrics.peers.size(), 1u);
  EXPECT_GE(metrics.peers[0].bytes, kBytes);
}

INSTANTIATE_TEST_SUITE_P(Progress, TwoEngines, testing::Values(Progress::threads, Progress::caller),
                         [](const auto& each) { return each.param == Progress::threads ? "Threads" : "Caller"; });

}  // namespace
}  // namespace fairway
