#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/gates.h"
#include "core/queues.h"

namespace fairway {
namespace {

TEST(SleepGate, NobodyPaysForAWakeUpWhileTheConsumerIsAwake) {
  SleepGate gate;
  EXPECT_FALSE(gate.claim_wake());
  gate.announce();
  gate.awake();
  EXPECT_FALSE(gate.claim_wake());
}

TEST(SleepGate, OneProducerWakesEachSleep) {
  SleepGate gate;
  for (int i = 0; i < 3; ++i) {
    gate.announce();
    EXPECT_EQ(gate.word().load(), SleepGate::kAsleep);
    EXPECT_TRUE(gate.claim_wake());
    EXPECT_FALSE(gate.claim_wake());
    EXPECT_EQ(gate.word().load(), SleepGate::kAwake);
    gate.awake();
  }
}

// The consumer sleeps whenever the queue is empty; a lost wake-up ends in the semaphore's time-out.
TEST(SleepGate, AConsumerThatSleepsAlwaysGetsEverything) {
  constexpr std::uint64_t kEach = 20000;
  constexpr std::size_t kProducers = 3;
  MpscQueue<std::uint64_t> queue(8);
  SleepGate gate;
  std::counting_semaphore<> kernel(0);
  std::vector<std::thread> producers;
  for (std::size_t p = 0; p < kProducers; ++p)
    producers.emplace_back([&] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        while (!queue.push(std::uint64_t{i})) std::this_thread::yield();
        if (gate.claim_wake()) kernel.release();
      }
    });
  std::uint64_t taken = 0;
  bool lost = false;
  for (std::uint64_t value; taken < kProducers * kEach && !lost;) {
    if (queue.pop(value)) {
      ++taken;
      continue;
    }
    gate.announce();
    if (queue.empty()) lost = !kernel.try_acquire_for(std::chrono::seconds(10));
    gate.awake();
  }
  EXPECT_FALSE(lost) << "after " << taken << " values";
  if (lost)
    for (std::uint64_t value; taken < kProducers * kEach;)
      queue.pop(value) ? static_cast<void>(++taken) : std::this_thread::yield();
  for (auto& producer : producers) producer.join();
}

}  // namespace
}  // namespace fairway
