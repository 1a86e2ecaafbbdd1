#include <atomic>

#include <gtest/gtest.h>
#include <sched.h>

#include "collectives/host/lanes.h"

namespace fairway::collectives {
namespace {

TEST(Crowd, NoticesAnotherThreadOnItsCoreAndSaysSoOnce) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  Crowd crowd;
  EXPECT_FALSE(crowd.leaves());
  std::atomic<bool> ends = false;
  std::thread other([&] {  // held to the same CPU, as its maker
    while (!ends) {
      for (const Time start = Clock::now(); Clock::now() - start < std::chrono::microseconds(5);) {
      }
      std::this_thread::yield();
    }
  });
  const Time end = Clock::now() + std::chrono::seconds(20);
  bool noticed = false;
  while (!noticed && Clock::now() < end) {
    crowd.yield();
    noticed = crowd.leaves();
  }
  EXPECT_TRUE(noticed);
  EXPECT_FALSE(crowd.leaves());
  ends = true;
  other.join();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace fairway::collectives
