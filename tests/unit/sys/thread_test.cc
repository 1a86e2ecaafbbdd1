#include "sys/thread.h"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

// Threads of the library, whatever the limits of the process that loads it.
namespace fairway::sys {
namespace {

// Down to the far end of half a MiB.
int touch_much() {
  volatile char much[512U << 10];
  for (std::size_t at = 0; at < sizeof much; at += 4096) much[at] = 1;
  return much[0];
}

TEST(Thread, HasHalfAMebibyteToTouch) {
  int touched = 0;
  auto thread = Thread::start("fairway-test", [&touched] { touched = touch_much(); });
  ASSERT_TRUE(thread) << thread.status().to_string();
  thread->join();
  EXPECT_EQ(touched, 1);
}

// `ulimit -s` is read when a process starts: the same once more, in one with a short stack.
TEST(Thread, HasThatRoomWhateverTheLimitOfStacks) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "ulimit -s 128 && exec " + self + " --gtest_filter=Thread.HasHalf* > /dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace fairway::sys
