#include <gtest/gtest.h>

#include "transport/planned_links.h"

namespace fairway::transport {
namespace {

TEST(Credits, ATotalThatWasOvertakenSaysNothing) {
  Credits credits(4, 4);
  for (int i = 0; i < 4; ++i) credits.take();
  EXPECT_EQ(credits.left(), 0u);
  EXPECT_TRUE(credits.update(3));
  EXPECT_EQ(credits.left(), 3u);
  EXPECT_TRUE(credits.update(1));
  EXPECT_TRUE(credits.update(3));
  EXPECT_EQ(credits.left(), 3u);
}

TEST(Credits, MoreThanWasTakenIsALie) {
  Credits credits(4, 4);
  credits.take();
  EXPECT_FALSE(credits.update(2));
  EXPECT_EQ(credits.left(), 3u);
}

TEST(Credits, RoomIsOwedFromHalfOn) {
  Credits credits(4, 4);
  credits.add_freed();
  EXPECT_FALSE(credits.update_due());
  credits.add_freed();
  EXPECT_TRUE(credits.update_due());
  EXPECT_EQ(credits.take_update(), 2u);
  EXPECT_FALSE(credits.update_due());
}

}  // namespace
}  // namespace fairway::transport
