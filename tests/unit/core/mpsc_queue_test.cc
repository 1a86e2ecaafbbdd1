#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/queues.h"

namespace fairway {
namespace {

TEST(MpscQueue, RoundsItsCapacityUpToAPowerOfTwo) {
  EXPECT_EQ(MpscQueue<int>(0).capacity(), 2u);
  EXPECT_EQ(MpscQueue<int>(1).capacity(), 2u);
  EXPECT_EQ(MpscQueue<int>(5).capacity(), 8u);
  EXPECT_EQ(MpscQueue<int>(64).capacity(), 64u);
}

TEST(MpscQueue, AFullQueueLeavesTheValueWithItsOwner) {
  MpscQueue<std::unique_ptr<std::string>> queue(2);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(queue.push(std::make_unique<std::string>("in")));
  auto kept = std::make_unique<std::string>("kept");
  EXPECT_FALSE(queue.push(std::move(kept)));
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, "kept");
}

TEST(MpscQueue, IsInOrderAcrossManyLaps) {
  MpscQueue<int> queue(4);
  int expected = 0;
  for (int value = 0; value < 1000;) {
    while (queue.push(int{value})) ++value;
    for (int out; queue.pop(out); ++expected) ASSERT_EQ(out, expected);
    EXPECT_TRUE(queue.empty());
  }
}

TEST(MpscQueue, DestroysWhatWasNotPopped) {
  auto shared = std::make_shared<int>(1);
  {
    MpscQueue<std::shared_ptr<int>> queue(8);
    for (int i = 0; i < 5; ++i) queue.push(std::shared_ptr<int>(shared));
    std::shared_ptr<int> out;
    queue.pop(out);
    EXPECT_EQ(shared.use_count(), 6);  // ours, out, four inside
  }
  EXPECT_EQ(shared.use_count(), 1);
}

struct Command {
  std::size_t producer = 0;
  std::uint64_t number = 0;
  std::unique_ptr<std::uint64_t> payload;  // written by the producer, read by the owner: ThreadSanitizer watches it
};

TEST(MpscQueue, ManyProducersLoseNothingAndEachStaysInOrder) {
  constexpr std::size_t kProducers = 4;
  constexpr std::uint64_t kEach = 20000;
  MpscQueue<Command> queue(64);
  std::vector<std::thread> producers;
  for (std::size_t p = 0; p < kProducers; ++p)
    producers.emplace_back([&queue, p] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        Command command{p, i, std::make_unique<std::uint64_t>(i * 3)};
        while (!queue.push(std::move(command))) std::this_thread::yield();
      }
    });
  std::vector<std::uint64_t> next(kProducers, 0);
  Command command;
  for (std::uint64_t taken = 0; taken < kProducers * kEach;) {
    if (!queue.pop(command)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(command.number, next[command.producer]++);
    ASSERT_EQ(*command.payload, command.number * 3);
    ++taken;
  }
  for (auto& producer : producers) producer.join();
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace fairway
