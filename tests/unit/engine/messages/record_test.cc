#include "engine/tables/record.h"

#include <deque>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "sim/simulation.h"

namespace fairway::engine {
namespace {

using Verdict = RecordStream::Verdict;

std::uint32_t make(RecordPool& pool) {
  const std::uint32_t record = pool.acquire();
  encode(pool[record], record::Credit{});
  return record;
}

std::uint32_t number_on_the_wire(RecordPool& pool, std::uint32_t record) {
  return ByteReader(pool[record].bytes).get<std::uint32_t>();
}

TEST(RecordStream, NumbersFollowTheOrderOfSendingAndTheWindowHoldsTheRest) {
  RecordPool pool;
  RecordStream stream(pool);
  std::vector<std::uint32_t> sent;
  for (std::uint32_t i = 0; i < 2 * kRecordWindow; ++i) stream.enqueue(make(pool));
  for (std::uint32_t record = stream.next(); record != kNoSlot; record = stream.next()) {
    EXPECT_EQ(number_on_the_wire(pool, record), sent.size());
    stream.posted(record);
    sent.push_back(record);
  }
  EXPECT_EQ(sent.size(), kRecordWindow);
  EXPECT_EQ(stream.waiting(), kRecordWindow);
  stream.arrived(sent[1]);  // not the oldest: the window stays
  EXPECT_EQ(stream.next(), kNoSlot);
  stream.arrived(sent[0]);  // both go
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(stream.next(), kNoSlot);
    stream.posted(stream.next());
  }
  EXPECT_EQ(stream.next(), kNoSlot);
}

TEST(RecordStream, OneWithoutABufferTakesANumberWhereNothingWaitsAndTheWindowHasRoom) {
  RecordPool pool;
  RecordStream stream(pool, ~0u);
  EXPECT_TRUE(stream.takes_one_now());
  EXPECT_EQ(stream.next_number(), ~0u);
  stream.sent_now();
  EXPECT_EQ(stream.next_number(), 0u);
  const std::uint32_t slow = make(pool);
  stream.enqueue(slow);
  EXPECT_EQ(number_on_the_wire(pool, slow), 0u);
  EXPECT_FALSE(stream.takes_one_now()) << "one waits";
  stream.posted(slow);
  for (std::uint32_t i = 1; i < kRecordWindow; ++i) {
    ASSERT_TRUE(stream.takes_one_now());
    stream.sent_now();
  }
  EXPECT_FALSE(stream.takes_one_now()) << "the window ends";
  stream.arrived(slow);
  EXPECT_TRUE(stream.takes_one_now());
  EXPECT_EQ(stream.next_number(), kRecordWindow);
}

TEST(RecordStream, WhatMustBeSentAgainGoesFirstUnderItsOldNumber) {
  RecordPool pool;
  RecordStream stream(pool);
  const std::uint32_t first = make(pool), second = make(pool), third = make(pool);
  for (const std::uint32_t record : {first, second, third}) stream.enqueue(record);
  stream.posted(stream.next());
  stream.posted(stream.next());
  stream.send_again(second);
  stream.send_again(first);
  EXPECT_EQ(stream.next(), second);
  EXPECT_EQ(number_on_the_wire(pool, second), 1u);
  stream.posted(second);
  EXPECT_EQ(stream.next(), first);
  stream.posted(first);
  EXPECT_EQ(stream.next(), third);
}

TEST(RecordStream, EachNumberIsTakenOnceWhateverTheOrder) {
  RecordPool pool;
  RecordStream stream(pool);
  EXPECT_EQ(stream.accept(3), Verdict::take);
  EXPECT_EQ(stream.accept(0), Verdict::take);
  EXPECT_EQ(stream.accept(0), Verdict::duplicate);
  EXPECT_EQ(stream.accept(3), Verdict::duplicate);
  EXPECT_EQ(stream.accept(1), Verdict::take);
  EXPECT_EQ(stream.accept(2), Verdict::take);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(stream.accept(i), Verdict::duplicate);
  EXPECT_EQ(stream.accept(4), Verdict::take);
}

TEST(RecordStream, NumbersBeyondTheWindowAreALie) {
  RecordPool pool;
  RecordStream stream(pool);
  EXPECT_EQ(stream.accept(kReorderWindow), Verdict::violation);
  EXPECT_EQ(stream.accept(1u << 31), Verdict::violation);
  EXPECT_EQ(stream.accept(kReorderWindow - 1), Verdict::take);
  EXPECT_EQ(stream.accept(0u - kReorderWindow - 1), Verdict::violation);
}

// Two streams over a road that loses, repeats and reorders, and whose numbers wrap on the way.
void deliver_exactly_once(std::uint64_t seed, std::uint32_t first) {
  sim::Random random(seed);
  RecordPool pool;
  RecordStream sender(pool, first), receiver(pool, first);
  std::map<std::uint32_t, int> taken;
  std::vector<std::uint32_t> on_the_road;
  std::deque<std::uint32_t> late;  // copies that wander on
  std::uint32_t enqueued = 0;
  while (taken.size() < 1000) {
    if (enqueued < 1000) {
      sender.enqueue(make(pool));
      ++enqueued;
    }
    for (std::uint32_t record = sender.next(); record != kNoSlot && random.chance(800); record = sender.next()) {
      sender.posted(record);
      on_the_road.push_back(record);
    }
    if (on_the_road.empty()) continue;
    const std::size_t which = random.below(on_the_road.size());
    const std::uint32_t record = on_the_road[which];
    on_the_road.erase(on_the_road.begin() + static_cast<std::ptrdiff_t>(which));
    const std::uint32_t number = number_on_the_wire(pool, record);
    if (!random.chance(300)) {  // it comes
      const Verdict verdict = receiver.accept(number);
      ASSERT_NE(verdict, Verdict::violation);
      if (verdict == Verdict::take) ++taken[number];
      late.push_back(number);
    }
    if (random.chance(300))
      sender.send_again(record);  // and its sender does not know
    else if (taken.contains(number))
      sender.arrived(record);
    else
      sender.send_again(record);
    if (late.size() > kReorderWindow) late.pop_front();
    if (late.empty() || !random.chance(300)) continue;
    // No older copy can exist: its link was closed on both ends before the window moved on.
    const std::uint32_t copy = late[random.below(late.size())];
    if (first + static_cast<std::uint32_t>(taken.size()) - copy <= kReorderWindow) {
      ASSERT_EQ(receiver.accept(copy), Verdict::duplicate);
    }
  }
  for (const auto& [number, times] : taken) EXPECT_EQ(times, 1) << number;
}

TEST(RecordStream, ALossyRoadDeliversExactlyOnce) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    deliver_exactly_once(seed, 0u - static_cast<std::uint32_t>(50 * seed));
}

TEST(RecordStream, TheReceiverAcceptsAcrossTheWrapOfItsNumbers) {
  RecordPool pool;
  std::uint32_t next = 0u - 3 * kReorderWindow;
  RecordStream stream(pool, next);
  for (int windows = 0; windows < 6; ++windows) {
    for (std::uint32_t i = kReorderWindow; i > 0; --i) {
      EXPECT_EQ(stream.accept(next + i - 1), Verdict::take);
      EXPECT_EQ(stream.accept(next + i - 1), Verdict::duplicate);
    }
    EXPECT_EQ(stream.accept(next + 2 * kReorderWindow), Verdict::violation);
    next += kReorderWindow;
  }
  EXPECT_EQ(next, 3 * kReorderWindow);
}

TEST(RecordStream, TheSenderNumbersAcrossTheWrap) {
  RecordPool pool;
  RecordStream stream(pool, 0u - 5);
  std::vector<std::uint32_t> sent;
  for (int i = 0; i < 200; ++i) stream.enqueue(make(pool));
  std::uint32_t expected = 0u - 5;
  while (stream.waiting() > 0) {
    while (stream.next() != kNoSlot) {
      sent.push_back(stream.next());
      EXPECT_EQ(number_on_the_wire(pool, sent.back()), expected++);
      stream.posted(sent.back());
    }
    ASSERT_FALSE(sent.empty());
    stream.arrived(sent.front());
    sent.erase(sent.begin());
  }
  EXPECT_EQ(expected, 195u);
}

TEST(RecordPool, GrowsToWhatIsInFlightAndNoFurther) {
  RecordPool pool;
  RecordStream stream(pool);
  std::uint32_t highest = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::uint32_t> sent;
    for (int i = 0; i < 10; ++i) {
      stream.enqueue(make(pool));
      sent.push_back(stream.next());
      stream.posted(sent.back());
      highest = std::max(highest, sent.back());
    }
    for (const std::uint32_t record : sent) stream.arrived(record);
  }
  EXPECT_LT(highest, 10u);
}

}  // namespace
}  // namespace fairway::engine
