#include "fairway/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/loopback.h"

#include "two_engines.h"

namespace fairway {
namespace {

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

TEST_P(TwoEngines, GetOnByWaitsThatHaveNoTime) {
  const auto end = std::chrono::steady_clock::now() + kSoon;
  const auto ends = [&](const Result<TransferId>& id) {
    while (id && std::chrono::steady_clock::now() < end)
      if (const auto done = left_->wait(*id, Timeout{0})) return done->status.is_ok();
    return false;
  };
  EXPECT_TRUE(ends(left_->write(right_peer_, extent(0, 0, 100'000))));
  EXPECT_TRUE(ends(left_->read(right_peer_, extent(0, 0, 100'000))));
  EXPECT_TRUE(ends(left_->fetch_add(right_peer_, {remote_.id, 0}, 1)));
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

TEST_P(TwoEngines, WithLocalCompletionASendIsCompleteBeforeItsReceiveIsThere) {
  RequestOptions local;
  local.local_completion = true;
  EXPECT_EQ(left_->write(right_peer_, extent(0, 0, 8), local).status().code(), ErrorCode::invalid_argument);
  const std::vector<std::uint8_t> sent(near_.begin(), near_.begin() + 100);
  EXPECT_TRUE(finish(left_->send(right_peer_, 1, {near_region_.id, 0, 100}, local), *left_).status);
  std::fill_n(near_.begin(), 100, std::uint8_t{0});
  std::array<PeerEvent, 1> event;
  while (right_->poll_peer_events(event) == 0) std::this_thread::yield();
  const Completion done = finish(right_->receive(event[0].peer, 1, {far_region_.id, 0, 100}), *right_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_EQ(0, std::memcmp(far_.data(), sent.data(), 100));
}

// Two receives that are told ahead end before their message: one is cancelled, of the other the memory is deregistered.
TEST_P(TwoEngines, NothingLandsInAReceiveThatEndedAndItsMessageGoesToTheNext) {
  constexpr std::uint64_t kLong = 64 * 1024;
  std::vector<std::uint8_t> going(kLong);
  const auto going_region = right_->register_memory(going.data(), going.size(), Access::none);
  ASSERT_TRUE(going_region);
  std::array<PeerEvent, 1> event;
  while (right_->poll_peer_events(event) == 0) std::this_thread::yield();
  const PeerId left_peer = event[0].peer;
  const auto cancelled = right_->receive(left_peer, 5, {far_region_.id, 0, kLong});
  const auto revoked = right_->receive(left_peer, 6, {going_region->id, 0, kLong});
  ASSERT_TRUE(cancelled && revoked);
  for (int i = 0; i < 100; ++i) {  // until the sender knows of them
    if (GetParam() == Progress::caller) (void)left_->poll({});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto sent = left_->send(right_peer_, 5, {near_region_.id, 0, kLong});  // it may be on its way to the first
  const auto result = right_->cancel(*cancelled, kSoon);
  ASSERT_TRUE(result && result->fenced);
  const bool came = finish(cancelled, *right_).status.is_ok();  // before it was cancelled
  EXPECT_TRUE(right_->deregister(*going_region, kSoon));
  EXPECT_EQ(finish(revoked, *right_).status.code(), ErrorCode::cancelled);
  std::fill_n(far_.begin(), kLong, std::uint8_t{0x55});
  std::fill(going.begin(), going.end(), std::uint8_t{0x55});
  const auto second = left_->send(right_peer_, 6, {near_region_.id, 0, kLong});
  const auto next = right_->receive(left_peer, 6, {far_region_.id, kLong, kLong});
  const auto again = right_->receive(left_peer, 5, {far_region_.id, 2 * kLong, kLong});
  const Completion end = finish(sent, *left_);
  if (!end.status) {
    EXPECT_EQ(end.status.code(), ErrorCode::cancelled);  // its receive had been found
  } else if (!came) {
    EXPECT_TRUE(finish(again, *right_).status);
    EXPECT_EQ(0, std::memcmp(far_.data() + 2 * kLong, near_.data(), kLong));
  }
  EXPECT_TRUE(finish(second, *left_).status);
  EXPECT_TRUE(finish(next, *right_).status);
  EXPECT_EQ(0, std::memcmp(far_.data() + kLong, near_.data(), kLong));
  EXPECT_EQ(std::count(far_.begin(), far_.begin() + kLong, std::uint8_t{0x55}), static_cast<std::ptrdiff_t>(kLong));
  EXPECT_EQ(std::count(going.begin(), going.end(), std::uint8_t{0x55}), static_cast<std::ptrdiff_t>(kLong));
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

TEST_P(TwoEngines, CancelOfWhatHasEndedSaysWhatItsCompletionDoes) {
  using Far = Cancelled::Far;
  const auto far_side = [&](TransferId id) {
    const auto cancelled = left_->cancel(id, kSoon);
    EXPECT_TRUE(cancelled && cancelled->fenced) << cancelled.status().to_string();
    return cancelled ? cancelled->far_side : Far::unknown;
  };
  for (int reused = 0; reused < 3; ++reused) {
    const TransferId written = *left_->write(right_peer_, extent(0, 0, kBytes));
    const TransferId unheard = *left_->receive(right_peer_, 1, {near_region_.id, 0, 64});
    EXPECT_TRUE(left_->flush(right_peer_, kSoon));
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(far_side(written), Far::all);
      EXPECT_EQ(far_side(unheard), Far::nothing);
    }
    EXPECT_EQ(finish(unheard, *left_).status.code(), ErrorCode::cancelled);
    EXPECT_TRUE(finish(written, *left_).status);
    EXPECT_EQ(left_->cancel(written, kSoon).status().code(), ErrorCode::not_found);
  }
}

// As deregister(): who cancels and collects at once leaves no slot behind.
TEST_P(TwoEngines, WhatACancelHasEndedIsThereWhenItReturns) {
  for (int round = 0; round < 2'000; ++round) {
    const auto id = left_->receive(round % 2 == 0 ? right_peer_ : PeerId{}, 1, {near_region_.id, 0, 64});
    ASSERT_TRUE(id);
    const auto cancelled = left_->cancel(*id, kSoon);
    ASSERT_TRUE(cancelled && cancelled->fenced);
    const auto done = left_->wait(*id, Timeout(0));
    ASSERT_TRUE(done) << "round " << round << ": " << done.status().to_string();
    ASSERT_EQ(done->status.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
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
