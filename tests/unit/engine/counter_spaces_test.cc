#include <array>
#include <string>
#include <thread>
#include <vector>

#include "collectives/counter_range.h"
#include "engine/tables/notify.h"
#include "two_engines.h"

namespace fairway {
namespace {

using engine::CounterSpaces;

struct Table {
  explicit Table(std::uint32_t counters = 100) : spaces(counters, 16), others(64, &spaces) {}
  Result<CounterSpace> make(std::uint32_t count, std::optional<std::uint32_t> first = {}) {
    return spaces.make(count, first, others);
  }
  void release(const CounterSpace& space) {
    const auto retired = spaces.retire(space.id);
    ASSERT_TRUE(retired);
    spaces.free(**retired);
  }
  CounterSpaces spaces;
  engine::CounterTable others;
};

TEST(CounterSpaces, CountForTheirOwnersAndFromZero) {
  Table t;
  const CounterSpace a = *t.make(10, 100);
  ASSERT_TRUE(t.make(1, 110));
  for (const std::uint32_t immediate : {99u, 100u, 109u, 109u, 110u, 111u}) EXPECT_TRUE(t.others.add(immediate));
  EXPECT_EQ(t.others.read(100), 1u);
  EXPECT_EQ(t.others.read(109), 2u);
  EXPECT_EQ(t.others.read(110), 1u);
  t.release(a);
  EXPECT_EQ(t.others.read(109), 0u) << "it is nobody's";
  EXPECT_EQ(t.others.read(110), 1u);
  EXPECT_EQ(t.others.read(99), 1u);
  const CounterSpace again = *t.make(10, 100);
  EXPECT_EQ(t.others.read(109), 0u);
  EXPECT_NE(again.id, a.id);
  EXPECT_EQ(t.spaces.find(a.id), nullptr);
}

TEST(CounterSpaces, NoTwoOverlapAndNoneTakesWhatOthersCount) {
  Table t;
  ASSERT_TRUE(t.make(10, 100));
  EXPECT_TRUE(t.others.add(500));
  for (const auto& [first, count] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {100, 10}, {91, 10}, {109, 1}, {0, 50'000'000}, {500, 1}, {490, 11}}) {
    const auto refused = t.make(count, first);
    EXPECT_EQ(refused.status().code(), ErrorCode::already_exists) << first;
    EXPECT_NE(refused.status().message().find(first < 110 ? "100 to 109" : "500"), std::string::npos)
        << refused.status().to_string();
  }
  EXPECT_TRUE(t.make(10, 110));
  EXPECT_TRUE(t.make(9, 91));
  EXPECT_TRUE(t.make(1, ~std::uint32_t{0}));
  EXPECT_EQ(t.make(2, ~std::uint32_t{0}).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(t.make(0).status().code(), ErrorCode::invalid_argument);
}

TEST(CounterSpaces, UnnamedRangesAreFreeOnesAndComeAgainLast) {
  Table t;
  const CounterSpace first = *t.make(10);
  EXPECT_TRUE(t.others.add(first.first + 15));
  const CounterSpace second = *t.make(10);
  EXPECT_EQ(second.first, first.first + 16) << "behind what others count";
  t.release(first);
  const CounterSpace third = *t.make(10);
  EXPECT_EQ(third.first, second.first + 10);
}

TEST(CounterSpaces, TheirCountersHaveOneLimitAndComeBack) {
  Table t(30);
  std::array<CounterSpace, 3> spaces{*t.make(10), *t.make(10), *t.make(10)};
  EXPECT_EQ(t.make(1).status().code(), ErrorCode::resource_exhausted);
  EXPECT_NE(t.make(1).status().message().find("max_counters"), std::string::npos);
  EXPECT_TRUE(t.others.add(spaces[1].first));
  t.release(spaces[1]);
  EXPECT_EQ(t.make(11).status().code(), ErrorCode::resource_exhausted);
  const CounterSpace again = *t.make(10);
  EXPECT_EQ(t.others.read(again.first), 0u) << "not its predecessor's count";
  EXPECT_TRUE(t.others.add(again.first + 9));
  EXPECT_EQ(t.others.read(spaces[2].first), 0u) << "its neighbour's are its own";
  Table many(1000);
  for (std::uint32_t i = 0; i < CounterSpaces::kMost; ++i) ASSERT_TRUE(many.make(1));
  EXPECT_EQ(many.make(1).status().code(), ErrorCode::resource_exhausted);
}

class Spaces : public TwoEngines {
 protected:
  void write(const Notify& notify) {
    RequestOptions options;
    options.notify = notify;
    EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 64), options), *left_).status);
  }
};

TEST_P(Spaces, TheirEventsAndCountsAreTheirOwnersAlone) {
  const CounterSpace a = *right_->make_counters(4), b = *right_->make_counters(4, 1000);
  const std::byte words[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  write(notify_event(a.first + 1));
  write(notify_event(b.first + 2, words));
  write(notify_event(7));
  write(notify_counter(a.first));
  write(notify_counter(b.first + 3));
  write(notify_counter(b.first + 3));
  std::array<Notification, 4> got;
  EXPECT_TRUE(right_->wait_notification(b.id, kSoon));
  ASSERT_EQ(right_->poll_notifications(b.id, got), 1u);
  EXPECT_EQ(got[0].immediate, b.first + 2);
  EXPECT_EQ(got[0].message_bytes, 3u);
  EXPECT_TRUE(right_->wait_notification(a.id, kSoon));
  ASSERT_EQ(right_->poll_notifications(a.id, got), 1u);
  EXPECT_EQ(got[0].immediate, a.first + 1);
  EXPECT_TRUE(right_->wait_notification(kSoon));
  ASSERT_EQ(right_->poll_notifications(got), 1u);
  EXPECT_EQ(got[0].immediate, 7u);
  EXPECT_TRUE(right_->wait_counter(a.first, 1, kSoon));
  EXPECT_TRUE(right_->wait_counter(b.first + 3, 2, kSoon));
  EXPECT_EQ(right_->counter(a.first + 1), 0u);
  EXPECT_EQ(right_->wait_notification(a.id, Timeout(0)).code(), ErrorCode::timed_out);
}

// A communicator counts in a range of its own choice, of which an engine knows nothing before it counts.
TEST_P(Spaces, TakeNothingOfWhatCommunicatorsTake) {
  constexpr std::uint32_t kFirst = collectives::CounterRange::kBegin, kEnd = collectives::CounterRange::kEnd;
  for (const std::uint32_t first : {kFirst - 3, kFirst, kEnd - 1}) {
    const Status refused = right_->make_counters(4, first).status();
    EXPECT_EQ(refused.code(), ErrorCode::already_exists) << first;
    EXPECT_NE(refused.message().find("communicators"), std::string::npos) << refused.to_string();
  }
  EXPECT_TRUE(right_->make_counters(4, kFirst - 4));
  EXPECT_TRUE(right_->make_counters(4, kEnd));
}

// Of the 64 that a peer has, at least 33 are there again at any time once all is polled.
TEST_P(Spaces, CreditsComeBackFromASpaceWhetherItIsPolledOrReleased) {
  std::array<Notification, 16> got;
  for (int round = 0; round < 3; ++round) {
    const CounterSpace space = *right_->make_counters(1);
    std::size_t polled = 0;
    for (int i = 0; i < 100; ++i) {
      write(notify_event(space.first));
      if (i % 16 != 15) continue;
      EXPECT_TRUE(right_->wait_notification(space.id, kSoon));
      polled += right_->poll_notifications(space.id, got);
    }
    while (polled < 100 && right_->wait_notification(space.id, kSoon))
      polled += right_->poll_notifications(space.id, got);
    EXPECT_EQ(polled, 100u);
    for (int i = 0; i < 30; ++i) write(notify_event(space.first));
    while (right_->metrics().peers[0].notifications < 130u * (static_cast<unsigned>(round) + 1))
      std::this_thread::yield();
    EXPECT_TRUE(right_->drain(kSoon));  // the worker has begun another step: the last one is where it belongs
    ASSERT_TRUE(right_->release_counters(space.id));
    EXPECT_EQ(right_->release_counters(space.id).code(), ErrorCode::not_found);
    EXPECT_EQ(right_->wait_notification(space.id, kSoon).code(), ErrorCode::not_found);
    EXPECT_EQ(right_->poll_notifications(space.id, got), 0u);
  }
  std::size_t all = 0;
  for (int i = 0; i < 30; ++i) write(notify_event(9));
  while (all < 30 && right_->wait_notification(kSoon)) all += right_->poll_notifications(got);
  EXPECT_EQ(all, 30u);
}

TEST_P(Spaces, ReleaseAndCloseEndTheirWaits) {
  const CounterSpace released = *left_->make_counters(1), kept = *left_->make_counters(1);
  std::thread first([&] { EXPECT_EQ(left_->wait_notification(released.id, kSoon).code(), ErrorCode::not_found); });
  EXPECT_TRUE(left_->release_counters(released.id));
  first.join();
  std::thread second([&] { EXPECT_EQ(left_->wait_notification(kept.id, kSoon).code(), ErrorCode::closed); });
  left_->close();
  second.join();
  EXPECT_EQ(left_->make_counters(1).status().code(), ErrorCode::closed);
}

INSTANTIATE_TEST_SUITE_P(Progress, Spaces, testing::Values(Progress::threads, Progress::caller));

}  // namespace
}  // namespace fairway
