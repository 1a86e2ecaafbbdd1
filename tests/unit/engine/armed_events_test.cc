#include "engine/armed_events.h"

#include <set>

#include <gtest/gtest.h>

namespace fairway::engine {
namespace {

Notification note(std::uint32_t immediate) {
  Notification made;
  made.immediate = immediate;
  return made;
}

struct Armed : testing::Test {
  bool hear(std::uint32_t name, std::uint32_t immediate) {
    now.reset();
    return events.hear(name, note(immediate), now);
  }
  ArmedEvents events;
  std::optional<Notification> now;
};

TEST(EventNames, AreAsManyAsThereAreCreditsAndEachUseOfASlotIsAnother) {
  EventNames names;
  std::set<std::uint32_t> all;
  for (int i = 0; i < 3; ++i) all.insert(names.take(3));
  EXPECT_EQ(all.size(), 3u);
  EXPECT_EQ(names.take(3), kNoEvent);
  const std::uint32_t one = *all.begin();
  names.free(one);
  const std::uint32_t next = names.take(3);
  EXPECT_EQ(EventName::slot(next), EventName::slot(one));
  EXPECT_EQ(EventName::generation(next), EventName::generation(one) + 1);
  EXPECT_EQ(next & EventName::kBit, 0u);
}

TEST_F(Armed, TheImmediateSetsItOffOnce) {
  const std::uint32_t name = EventName::make(5, 1);
  ASSERT_TRUE(hear(name, 7));
  EXPECT_FALSE(now);
  EXPECT_EQ(events.waiting(), 1u);
  const auto first = events.set_off(name);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->immediate, 7u);
  EXPECT_EQ(events.waiting(), 0u);
  EXPECT_FALSE(events.set_off(name));
}

TEST_F(Armed, AnImmediateBeforeItsRecordDeliversWithTheRecord) {
  const std::uint32_t name = EventName::make(0, 1);
  EXPECT_FALSE(events.set_off(name));
  ASSERT_TRUE(hear(name, 9));
  ASSERT_TRUE(now);
  EXPECT_EQ(now->immediate, 9u);
  EXPECT_EQ(events.waiting(), 0u);
}

TEST_F(Armed, ALateImmediateOfOneThatWasGivenUpSetsNothingOff) {
  const std::uint32_t old = EventName::make(2, 1), next = EventName::make(2, 2);
  ASSERT_TRUE(hear(old, 1));
  EXPECT_TRUE(events.give_up(old));
  EXPECT_FALSE(events.give_up(old));
  EXPECT_FALSE(events.set_off(old));
  ASSERT_TRUE(hear(next, 2));
  EXPECT_FALSE(now);
  EXPECT_FALSE(events.set_off(old));  // and still later
  const auto second = events.set_off(next);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->immediate, 2u);
}

TEST_F(Armed, OneThatWasSetOffIsNotGivenUp) {
  const std::uint32_t name = EventName::make(1, 1);
  ASSERT_TRUE(hear(name, 1));
  ASSERT_TRUE(events.set_off(name));
  EXPECT_FALSE(events.give_up(name));
}

TEST_F(Armed, TheSameOneTwiceIsALie) {
  const std::uint32_t name = EventName::make(1, 4);
  ASSERT_TRUE(hear(name, 1));
  EXPECT_FALSE(hear(name, 1));
  EXPECT_FALSE(hear(EventName::make(1, 5), 1)) << "the slot waits";
  ASSERT_TRUE(events.set_off(name));
  EXPECT_FALSE(hear(name, 1));
  EXPECT_FALSE(hear(EventName::make(1, 3), 1)) << "of before";
}

TEST_F(Armed, GenerationsWrap) {
  std::uint16_t generation = 0;
  for (int i = 0; i < 3 * 65536; ++i) {
    const std::uint32_t name = EventName::make(0, ++generation);
    ASSERT_TRUE(hear(name, 1)) << i;
    ASSERT_TRUE(events.set_off(name)) << i;
  }
}

}  // namespace
}  // namespace fairway::engine
