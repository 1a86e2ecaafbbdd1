#include <gtest/gtest.h>

#include "engine/messages/notifier.h"

namespace fairway::engine {
namespace {

using Heard = ArmedEvents::Heard;

struct Armed : testing::Test {
  Heard hear(std::uint32_t number, std::uint32_t immediate) {
    note.immediate = immediate;
    return events.hear(number, note);
  }
  ArmedEvents events;
  Notification note;
};

TEST_F(Armed, TheImmediateSetsItOffOnce) {
  ASSERT_EQ(hear(5, 7), Heard::waits);
  ASSERT_EQ(hear(6, 8), Heard::waits);
  EXPECT_EQ(events.waiting(), 2u);
  const auto first = events.set_off(5, true);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->immediate, 7u);
  EXPECT_EQ(events.waiting(), 1u);
  EXPECT_FALSE(events.set_off(5, true));
  const auto second = events.set_off(6, true);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->immediate, 8u);
}

TEST_F(Armed, AnImmediateBeforeItsRecordDeliversWithTheRecord) {
  EXPECT_FALSE(events.set_off(3, false));
  EXPECT_FALSE(events.set_off(3, false));
  EXPECT_EQ(events.early(), 1u);
  EXPECT_EQ(hear(4, 1), Heard::waits);
  EXPECT_EQ(hear(3, 9), Heard::deliver);
  EXPECT_EQ(note.immediate, 9u);
  EXPECT_EQ(events.early(), 0u);
  EXPECT_EQ(events.waiting(), 1u);
}

TEST_F(Armed, ALateImmediateOfOneThatWasGivenUpSetsNothingOff) {
  ASSERT_EQ(hear(1, 1), Heard::waits);
  EXPECT_TRUE(events.give_up(1, true));
  EXPECT_FALSE(events.give_up(1, true));
  EXPECT_FALSE(events.set_off(1, true));
  EXPECT_EQ(events.early(), 0u);
}

TEST_F(Armed, OneThatIsGivenUpBeforeItsRecordCameNeverWaits) {
  EXPECT_FALSE(events.give_up(1, false));
  EXPECT_EQ(hear(1, 1), Heard::given_up);
  EXPECT_EQ(events.waiting(), 0u);
}

TEST_F(Armed, WhoseBytesCameIsToldThoughItsSenderGaveItUp) {
  EXPECT_FALSE(events.give_up(1, false));
  EXPECT_FALSE(events.set_off(1, false));
  EXPECT_EQ(hear(1, 1), Heard::deliver);
  EXPECT_EQ(events.early(), 0u);
}

TEST_F(Armed, OneThatWasSetOffIsNotGivenUp) {
  ASSERT_EQ(hear(1, 1), Heard::waits);
  ASSERT_TRUE(events.set_off(1, true));
  EXPECT_FALSE(events.give_up(1, true));
}

}  // namespace
}  // namespace fairway::engine
