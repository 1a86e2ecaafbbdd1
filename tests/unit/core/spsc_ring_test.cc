#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "core/queues.h"

namespace fairway {
namespace {

TEST(SpscRing, UsesEveryCellOfItsCapacity) {
  for (const std::size_t capacity : {1u, 2u, 8u}) {
    SpscRing<int> ring(capacity);
    EXPECT_EQ(ring.capacity(), capacity);
    for (std::size_t i = 0; i < capacity; ++i) EXPECT_TRUE(ring.push(static_cast<int>(i)));
    EXPECT_EQ(ring.size(), capacity);
    EXPECT_FALSE(ring.push(99));
  }
}

TEST(SpscRing, AFullRingLeavesTheValueWithItsOwner) {
  SpscRing<std::string> ring(1);
  const std::string copied = "a text that is too long to be stored inside the string";
  EXPECT_TRUE(ring.push(copied));
  std::string kept = copied;
  EXPECT_FALSE(ring.push(std::move(kept)));
  EXPECT_EQ(kept, copied);
}

TEST(SpscRing, FrontShowsTheOldestUntilItIsPopped) {
  SpscRing<int> ring(4);
  EXPECT_EQ(ring.front(), nullptr);
  EXPECT_FALSE(ring.pop());
  ring.push(1);
  ring.push(2);
  ASSERT_NE(ring.front(), nullptr);
  EXPECT_EQ(*ring.front(), 1);
  EXPECT_EQ(*ring.front(), 1);
  EXPECT_TRUE(ring.pop());
  EXPECT_EQ(*ring.front(), 2);
  EXPECT_EQ(ring.size(), 1u);
}

TEST(SpscRing, DestroysWhatWasNotPopped) {
  auto shared = std::make_shared<int>(1);
  {
    SpscRing<std::shared_ptr<int>> ring(4);
    for (int i = 0; i < 3; ++i) ring.push(shared);
    ring.pop();
    EXPECT_EQ(shared.use_count(), 3);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(SpscRing, TwoThreadsLoseNothingAndStayInOrder) {
  constexpr std::uint64_t kValues = 200000;
  SpscRing<std::unique_ptr<std::uint64_t>> ring(16);
  std::thread producer([&ring] {
    for (std::uint64_t i = 0; i < kValues; ++i) {
      auto value = std::make_unique<std::uint64_t>(i);
      while (!ring.push(std::move(value))) std::this_thread::yield();
    }
  });
  std::unique_ptr<std::uint64_t> out;
  for (std::uint64_t expected = 0; expected < kValues;) {
    ASSERT_LE(ring.size(), ring.capacity());
    if (!ring.pop(out)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(*out, expected++);
  }
  producer.join();
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace fairway
