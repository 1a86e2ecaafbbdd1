#include <cstdint>
#include <deque>
#include <random>

#include <gtest/gtest.h>

#include "transport/verbs/lane.h"

namespace fairway::transport::verbs {
namespace {

int room_of(SendWindow window) {
  int room = 0;
  for (; !window.is_full(); ++room) window.post();
  return room;
}

TEST(SendWindow, KeepsOneBackForTheEndOfARun) {
  SendWindow window(8);
  EXPECT_EQ(room_of(window), 7);
  for (int i = 0; i < 7; ++i) window.post();
  EXPECT_TRUE(window.is_full());
  EXPECT_TRUE(window.run_is_open());
  EXPECT_EQ(window.post(), 8u);  // the one kept back
  window.end_run();
  EXPECT_FALSE(window.run_is_open());
  EXPECT_TRUE(window.is_full());
  EXPECT_TRUE(window.complete(8));
  EXPECT_EQ(room_of(window), 7);
}

TEST(SendWindow, TakesNoCompletionTwiceOrOfWhatWasNotPosted) {
  SendWindow window(8);
  EXPECT_FALSE(window.complete(1));
  window.post();
  window.post();
  EXPECT_TRUE(window.complete(2));
  EXPECT_FALSE(window.complete(1)) << "it ended with the second";
  EXPECT_FALSE(window.complete(2));
  EXPECT_FALSE(window.complete(3));
}

// Whatever is posted in whatever batches: never more outstanding than the queue holds, and whenever something is
// outstanding, a completion is to come.
TEST(SendWindow, NeverOverflowsAndNeverStarves) {
  for (const std::uint32_t depth : {2u, 4u, 16u, 512u}) {
    std::mt19937 random(depth);
    SendWindow window(depth);
    std::deque<std::uint64_t> signaled;
    for (int turn = 0; turn < 20000; ++turn) {
      for (auto batch = random() % 70; batch > 0 && !window.is_full(); --batch) {
        window.post();
        if (window.run_is_long()) {
          if (random() % 2 == 0) window.post();  // the read behind writes
          window.end_run();
          signaled.push_back(window.posted());
        }
      }
      if (window.run_is_open()) {
        window.end_run();
        signaled.push_back(window.posted());
      }
      const auto out = window.posted() - window.completed();
      ASSERT_LE(out, depth);
      ASSERT_EQ(out == 0, signaled.empty());
      for (auto some = random() % 4; some > 0 && !signaled.empty(); --some) {
        ASSERT_TRUE(window.complete(signaled.front()));
        signaled.pop_front();
      }
    }
    EXPECT_GT(window.completed(), 1000u);
  }
}

TEST(Credits, AreWhatThePeerHasRoomFor) {
  Credits credits(4, 4);
  for (int i = 0; i < 4; ++i) credits.take();
  EXPECT_EQ(credits.left(), 0u);
  EXPECT_TRUE(credits.update(2));
  EXPECT_EQ(credits.left(), 2u);
  EXPECT_TRUE(credits.update(2)) << "said again";
  EXPECT_EQ(credits.left(), 2u);
  EXPECT_FALSE(credits.update(5)) << "more than was used";
  EXPECT_TRUE(credits.update(4));
  EXPECT_EQ(credits.left(), 4u);
}

TEST(Credits, AreOwedFromHalfOnAndToldAsATotal) {
  Credits credits(8, 8);
  for (int i = 0; i < 3; ++i) credits.add_freed();
  EXPECT_FALSE(credits.update_due());
  credits.add_freed();
  EXPECT_TRUE(credits.update_due());
  EXPECT_EQ(credits.take_update(), 4u);
  EXPECT_FALSE(credits.update_due());
  credits.add_freed();
  EXPECT_EQ(credits.take_update(), 5u);
}

// Two ends, words about room that travel late: never more on the way than receives, and words that take none of them
// never more than two.
TEST(Credits, TwoEndsNeverOverrunEachOther) {
  constexpr std::uint32_t kReceives = 32;
  std::mt19937 random(1);
  Credits sender(kReceives, kReceives), receiver(kReceives, kReceives);
  std::uint32_t waiting = 0;        // at the receiver
  std::deque<std::uint32_t> words;  // on their way back
  std::uint64_t sent = 0;
  for (int turn = 0; turn < 200000; ++turn) {
    switch (random() % 3) {
      case 0:
        if (sender.left() > 0) {
          sender.take();
          ++waiting;
          ++sent;
        }
        break;
      case 1:
        if (waiting > 0) {
          --waiting;
          receiver.add_freed();
        }
        if (receiver.update_due()) words.push_back(receiver.take_update());
        break;
      default:
        if (!words.empty()) {
          ASSERT_TRUE(sender.update(words.front()));
          words.pop_front();
        }
    }
    ASSERT_LE(waiting, kReceives);
    ASSERT_LE(words.size(), 2u);
  }
  EXPECT_GT(sent, 10000u);
}

}  // namespace
}  // namespace fairway::transport::verbs
