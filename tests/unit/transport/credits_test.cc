#include "transport/credits.h"

#include <gtest/gtest.h>

namespace fairway::transport {
namespace {

TEST(Credits, ATotalThatWasOvertakenSaysNothing) {
  Credits credits(4, 4);
  for (int i = 0; i < 4; ++i) credits.take();
  EXPECT_EQ(credits.left(), 0u);
  EXPECT_TRUE(credits.hear(3));
  EXPECT_EQ(credits.left(), 3u);
  EXPECT_TRUE(credits.hear(1));
  EXPECT_TRUE(credits.hear(3));
  EXPECT_EQ(credits.left(), 3u);
}

TEST(Credits, MoreThanWasTakenIsALie) {
  Credits credits(4, 4);
  credits.take();
  EXPECT_FALSE(credits.hear(2));
  EXPECT_EQ(credits.left(), 3u);
}

TEST(Credits, RoomIsOwedFromHalfOn) {
  Credits credits(4, 4);
  credits.make_room();
  EXPECT_FALSE(credits.owes());
  credits.make_room();
  EXPECT_TRUE(credits.owes());
  EXPECT_EQ(credits.tell(), 2u);
  EXPECT_FALSE(credits.owes());
}

}  // namespace
}  // namespace fairway::transport
