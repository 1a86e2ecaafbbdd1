#include "engine/tables/notify.h"

#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/arrivals.h"

namespace fairway::engine {
namespace {

TEST(NotificationQueue, EveryPeerGetsSomeAndTheyNeverExceedItsRoom) {
  constexpr std::uint32_t kPeers = 16, kShared = 64;
  NotificationQueue queue(kPeers, kShared);
  std::vector<std::uint32_t> first;
  for (int life = 0; life < 3; ++life) {
    std::vector<std::uint32_t> granted;
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < kPeers; ++i) {
      granted.push_back(queue.grant(1000));
      sum += granted.back();
      EXPECT_GE(granted.back(), 4u);
    }
    EXPECT_LE(sum, 4 * kPeers + kShared);
    EXPECT_GT(granted.front(), granted.back());
    Notification one;
    for (std::uint32_t i = 0; i < sum; ++i) EXPECT_TRUE(queue.push(Notification(one))) << "granted, but no room for it";
    for (std::uint32_t i = 0; i < sum; ++i) EXPECT_TRUE(queue.pop(one));
    for (const std::uint32_t each : granted) queue.give_back(each);
    if (life == 0) first = granted;
    EXPECT_EQ(granted, first) << "a life of all peers leaves nothing behind";
  }
  EXPECT_EQ(queue.grant(2), 2u);
}

TEST(NotificationQueue, GivesEachNotificationToOneConsumer) {
  constexpr std::uint32_t kCount = 20'000;
  NotificationQueue queue(1, 60);
  std::vector<std::atomic<int>> seen(kCount);
  std::atomic<std::uint32_t> taken{0};
  const auto consume = [&] {
    Notification one;
    while (taken.load() < kCount)
      if (queue.pop(one)) {
        ++seen[one.immediate];
        ++taken;
      } else {
        std::this_thread::yield();
      }
  };
  std::thread first(consume), second(consume);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    Notification one;
    one.immediate = i;
    while (!queue.push(std::move(one))) std::this_thread::yield();
  }
  first.join();
  second.join();
  for (const auto& each : seen) EXPECT_EQ(each.load(), 1);
  EXPECT_TRUE(queue.empty());
}

TEST(CounterTable, CountsEachValueByItselfUpToItsCapacity) {
  CounterTable table(3);
  EXPECT_EQ(table.read(0), 0u);
  EXPECT_TRUE(table.add(0));
  EXPECT_TRUE(table.add(~0u, 5));
  EXPECT_TRUE(table.add(7));
  EXPECT_FALSE(table.add(8));
  EXPECT_TRUE(table.add(7, 2));  // known ones go on
  EXPECT_EQ(table.read(0), 1u);
  EXPECT_EQ(table.read(~0u), 5u);
  EXPECT_EQ(table.read(7), 3u);
  EXPECT_EQ(table.read(8), 0u);
}

TEST(CounterTable, LosesNothingAmongThreads) {
  constexpr std::uint32_t kValues = 32, kRounds = 2000;
  CounterTable table(kValues);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (std::uint32_t i = 0; i < kRounds; ++i)
        for (std::uint32_t value = 0; value < kValues; ++value) EXPECT_TRUE(table.add(value * 0x10001));
    });
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t value = 0; value < kValues; ++value) EXPECT_EQ(table.read(value * 0x10001), 3 * kRounds);
}

TEST(CounterTable, HasItsLastPlaceForAValueThatSeveralThreadsBringAtOnce) {
  constexpr std::uint32_t kThreads = 3, kRounds = 3000;
  std::vector<std::unique_ptr<CounterTable>> tables;
  for (std::uint32_t i = 0; i < kRounds; ++i) tables.push_back(std::make_unique<CounterTable>(1));
  std::barrier together(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (const auto& table : tables) {
        together.arrive_and_wait();
        EXPECT_TRUE(table->add(7));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& table : tables) EXPECT_EQ(table->read(7), kThreads);
}

TEST(PolledCounts, CountWhoIsThereAndNobodyElse) {
  PolledCounts polled(2);
  const PeerId first{1, 1}, next{1, 2};
  EXPECT_FALSE(polled.add(first));
  polled.open(first);
  EXPECT_TRUE(polled.add(first));
  EXPECT_TRUE(polled.add(first));
  EXPECT_FALSE(polled.add(next));
  EXPECT_EQ(polled.of(first), 2u);
  EXPECT_FALSE(polled.of(next));
  EXPECT_EQ(polled.close(first), 2u);
  EXPECT_FALSE(polled.add(first)) << "its notifications go to nobody's account";
  EXPECT_FALSE(polled.of(first));
  polled.open(next);
  EXPECT_FALSE(polled.add(first));
  EXPECT_EQ(polled.of(next), 0u) << "a peer begins with nothing";
}

TEST(PolledCounts, GoOnPast32Bits) {
  PolledCounts polled(1, 0xffff'fffe);
  const PeerId peer{0, 3};
  polled.open(peer);
  for (const std::uint32_t count : {0xffff'ffffu, 0u, 1u}) {
    EXPECT_TRUE(polled.add(peer)) << "the peer counts as gone, and its notifications stall";
    EXPECT_EQ(polled.of(peer), count);
  }
  EXPECT_FALSE(polled.of({0, 4})) << "the count ran over into the generation";
}

}  // namespace
}  // namespace fairway::engine
