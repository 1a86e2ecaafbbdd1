#include "core/slot_pool.h"

#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(SlotPool, LendsEverySlotOnceThenSaysNone) {
  SlotPool<int> pool(5);
  std::set<std::uint32_t> lent;
  for (int i = 0; i < 5; ++i) {
    const auto index = pool.acquire();
    ASSERT_TRUE(index);
    ASSERT_LT(*index, pool.capacity());
    EXPECT_TRUE(lent.insert(*index).second);
  }
  EXPECT_FALSE(pool.acquire());
  pool.release(3);
  EXPECT_EQ(pool.acquire(), 3u);
}

TEST(SlotPool, OfNothingLendsNothing) {
  EXPECT_FALSE(SlotPool<int>(0).acquire());
}

TEST(SlotPool, AGenerationIsOddWhileLentAndNeverComesBack) {
  SlotPool<int> pool(1);
  std::uint32_t before = pool.generation(0);
  EXPECT_EQ(before % 2, 0u);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool.acquire());
    EXPECT_EQ(pool.generation(0), before + 1);
    pool.release(0);
    EXPECT_EQ(pool.generation(0), before + 2);
    before += 2;
  }
}

TEST(SlotPool, TwoThreadsNeverHoldOneSlot) {
  struct Slot {
    std::uint64_t tenant = 0;  // not atomic: ThreadSanitizer sees any two tenants at once
    std::uint64_t check = 0;
  };
  constexpr int kThreads = 4;
  SlotPool<Slot> pool(6);
  std::vector<std::thread> threads;
  for (std::uint64_t me = 1; me <= kThreads; ++me)
    threads.emplace_back([&pool, me] {
      for (std::uint64_t i = 0; i < 20000; ++i) {
        std::uint32_t held[3];
        std::size_t count = 0;
        for (; count < 1 + i % 3; ++count) {
          const auto index = pool.acquire();
          if (!index) break;
          held[count] = *index;
          pool[*index] = {me, i};
        }
        for (std::size_t k = 0; k < count; ++k) {
          ASSERT_EQ(pool[held[k]].tenant, me);
          ASSERT_EQ(pool[held[k]].check, i);
          ASSERT_EQ(pool.generation(held[k]) % 2, 1u);
          pool.release(held[k]);
        }
        if (count == 0) std::this_thread::yield();
      }
    });
  for (auto& thread : threads) thread.join();
  std::set<std::uint32_t> lent;
  for (int i = 0; i < 6; ++i) lent.insert(pool.acquire().value());
  EXPECT_EQ(lent.size(), 6u);
}

}  // namespace
}  // namespace fairway
