#include "transport/event_queue.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace fairway::transport {
namespace {

constexpr std::size_t kSize = 3000;  // not a divisor of what the queue keeps bytes in

std::vector<std::byte> message(std::uint8_t seed) {
  return std::vector<std::byte>(kSize, static_cast<std::byte>(seed));
}

bool holds(const Event& event, std::uint8_t seed) {
  return std::ranges::equal(event.bytes, message(seed));
}

TEST(EventQueue, BytesOfWhatWaitsSurvivePollsThatDoNotTakeIt) {
  EventQueue queue;
  for (std::uint8_t i = 0; i < 100; ++i) queue.add(EventKind::message, {}, message(i));
  std::array<Event, 7> events;
  std::uint8_t next = 0, added = 100;
  while (!queue.empty()) {
    queue.begin_poll();
    if (added < 200) queue.add(EventKind::message, {}, message(added++));
    const std::size_t count = queue.take(events);
    for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(holds(events[i], next++)) << int{next};
  }
  EXPECT_EQ(next, added);
}

TEST(EventQueue, WhatAPollLentStaysWhateverIsAddedUntilTheNext) {
  EventQueue queue;
  queue.add(EventKind::message, {}, message(1));
  queue.begin_poll();
  std::array<Event, 4> events;
  ASSERT_EQ(queue.take(events), 1u);
  for (std::uint8_t i = 0; i < 200; ++i) queue.add(EventKind::message, {}, message(i));
  EXPECT_TRUE(holds(events[0], 1));
}

TEST(EventQueue, ThereIsRoomAgainOnceAllWasTaken) {
  EventQueue queue;
  std::array<Event, 16> events;
  for (int turn = 0; turn < 3; ++turn) {
    std::size_t added = 0;
    for (; queue.has_space(); ++added) queue.add(EventKind::message, {}, message(0));
    EXPECT_GE(added, std::size_t{256 * 1024} / kSize) << turn;
    EXPECT_LE(added, std::size_t{256 * 1024} / kSize + 1) << turn;
    while (queue.take(events) != 0) {
    }
    queue.begin_poll();
    EXPECT_TRUE(queue.has_space());
  }
}

}  // namespace
}  // namespace fairway::transport
