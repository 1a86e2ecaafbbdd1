#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "process/collectives/group.h"

// Messages between two ranks of a communicator.
namespace fairway {
namespace {

GroupOptions group(int size, const std::string& transport) {
  GroupOptions options;
  options.size = size;
  options.transports = {transport};
  return options;
}

TEST(Messages, GoByRankAndTag) {
  run_group(group(3, "shm"), [](Engine&, Communicator& communicator) {
    const int me = communicator.rank();
    std::vector<int> data(20000, me);
    if (me == 0) {
      std::size_t received = 0;
      for (const int from : {2, 1}) {
        ASSERT_TRUE(communicator.receive(data.data(), data.size() * 4, from, 7, &received));
        EXPECT_EQ(received, data.size() * 4);
        EXPECT_EQ(data.back(), from);
      }
      EXPECT_TRUE(communicator.receive(nullptr, 0, 1, 8));
      EXPECT_EQ(communicator.receive(data.data(), 4, 2, 9).code(), ErrorCode::truncated);
    } else {
      ASSERT_TRUE(communicator.send(data.data(), data.size() * 4, 0, 7));
      if (me == 1) {
        EXPECT_TRUE(communicator.send(nullptr, 0, 0, 8));
      }
      if (me == 2) (void)communicator.send(data.data(), 8, 0, 9);
    }
    EXPECT_TRUE(communicator.run({}));
  });
}

// A halo exchange: all start to send before any receives, which blocking calls could not.
TEST(Messages, AreStartedInGroups) {
  for (const char* transport : {"shm", "tcp"})
    run_group(group(4, transport), [](Engine&, Communicator& communicator) {
      constexpr std::size_t kLong = 300'000;
      const int me = communicator.rank(), right = (me + 1) % 4, left = (me + 3) % 4;
      const std::vector<int> mine(kLong, me);
      std::vector<int> from_left(kLong), from_right(kLong);
      const auto to_right = communicator.start_send(mine.data(), kLong * 4, right, 1);
      const auto to_left = communicator.start_send(mine.data(), 8, left, 1);
      const auto of_right = communicator.start_receive(from_right.data(), kLong * 4, right, 1);
      const auto of_left = communicator.start_receive(from_left.data(), kLong * 4, left, 1);
      ASSERT_TRUE(to_right && to_left && of_right && of_left);
      while (!communicator.test(*of_left)) std::this_thread::yield();
      std::size_t received = 0;
      EXPECT_TRUE(communicator.wait(*of_left, &received));
      EXPECT_EQ(received, kLong * 4);
      EXPECT_TRUE(communicator.wait(*of_right, &received));
      EXPECT_EQ(received, 8U);
      EXPECT_EQ(from_left.back(), left);
      EXPECT_EQ(from_right[1], right);
      EXPECT_TRUE(communicator.wait(*to_left));
      EXPECT_TRUE(communicator.wait(*to_right));
      EXPECT_EQ(communicator.wait(*to_right).code(), ErrorCode::not_found);
      EXPECT_TRUE(communicator.test(*to_right)) << "it has ended";

      const auto never = communicator.start_receive(from_left.data(), 8, left, 2, std::chrono::milliseconds(50));
      ASSERT_TRUE(never);
      EXPECT_EQ(communicator.wait(*never).code(), ErrorCode::deadline_exceeded);
      for (const Timeout passed : {Timeout(0), Timeout(-1)}) {
        EXPECT_EQ(communicator.send(mine.data(), 8, right, 4, passed).code(), ErrorCode::deadline_exceeded);
        EXPECT_EQ(communicator.receive(from_left.data(), 8, left, 4, nullptr, passed).code(),
                  ErrorCode::deadline_exceeded);
      }
      EXPECT_TRUE(communicator.run({}));
      const auto unsent = communicator.start_receive(from_left.data(), 8, left, 4, std::chrono::milliseconds(10));
      ASSERT_TRUE(unsent);
      EXPECT_EQ(communicator.wait(*unsent).code(), ErrorCode::deadline_exceeded) << "its send had no time to begin";
      EXPECT_EQ(communicator.start_send(mine.data(), 8, me).status().code(), ErrorCode::invalid_argument);
      // Taken back at the end of the communicator: its memory may go.
      EXPECT_TRUE(communicator.start_receive(from_right.data(), 8, right, 3));
      EXPECT_TRUE(communicator.run({}));
    });
}

// No number is the library's own: -1, which is any tag in MPI, ended the communicator.
TEST(Messages, EveryTagIsTheUsers) {
  for (const char* transport : {"shm", "tcp"})
    run_group(group(2, transport), [](Engine&, Communicator& communicator) {
      const int other = 1 - communicator.rank();
      for (const std::uint32_t tag : {~0U, 0U, 1U, 0x80000000U}) {
        int sent = communicator.rank(), received = -1;
        const auto out = communicator.start_send(&sent, sizeof sent, other, tag);
        ASSERT_TRUE(out);
        const Status status = communicator.receive(&received, sizeof received, other, tag);
        EXPECT_TRUE(status) << tag << ": " << status.to_string();
        EXPECT_EQ(received, other) << tag;
        EXPECT_TRUE(communicator.wait(*out));
      }
      int mine = 1, sum = 0;
      const Status status = communicator.run(
          {.kind = CollectiveKind::all_reduce, .input = &mine, .output = &sum, .count = 1, .type = DataType::i32});
      EXPECT_TRUE(status) << status.to_string();
      EXPECT_EQ(sum, 2);
    });
}

}  // namespace
}  // namespace fairway
