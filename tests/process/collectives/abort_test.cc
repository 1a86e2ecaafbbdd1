#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "process/collectives/group.h"

// A rank that ends the communicator: its own calls end, and every other rank is told by whom.
namespace fairway {
namespace {

struct Aborts : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Aborts, testing::Values("shm", "tcp", "loopback"));

GroupOptions options_for(int size, const std::string& transport) {
  GroupOptions options;
  options.size = size;
  options.transports = {transport};
  return options;
}

void expect_over(Communicator& group, int by) {
  EXPECT_EQ(group.failure().rank, by) << group.failure().status.to_string();
  EXPECT_EQ(group.failure().status.code(), ErrorCode::cancelled) << group.failure().status.to_string();
  EXPECT_EQ(group.run({}).code(), ErrorCode::cancelled);
}

TEST_P(Aborts, AnotherThreadEndsACallThatWaits) {
  run_group(options_for(3, GetParam()), [](Engine&, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    std::thread other;
    if (group.rank() == 1)
      other = std::thread([&group] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        group.abort();
        group.abort();
      });
    Status status;
    if (group.rank() != 2) {  // rank 2 comes when it is over
      const auto start = std::chrono::steady_clock::now();
      status = group.run({});
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      status = group.run({});
    }
    if (other.joinable()) other.join();
    EXPECT_EQ(status.code(), ErrorCode::cancelled) << status.to_string();
    if (group.rank() != 1) {
      EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.to_string();
      EXPECT_NE(status.message().find("has aborted the communicator"), std::string::npos) << status.to_string();
    }
    EXPECT_EQ(group.failure().operation, 3U);  // joining was the first
    expect_over(group, 1);
  });
}

TEST_P(Aborts, TheOthersGoOnWithoutIt) {
  std::atomic<int> went_on{0};
  run_group(options_for(3, GetParam()), [&](Engine&, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    if (group.rank() == 0) {
      group.abort();
      expect_over(group, 0);
      EXPECT_EQ(group.shrink().status().code(), ErrorCode::cancelled);
      EXPECT_EQ(group.split(0).status().code(), ErrorCode::cancelled);
      int word = 0;
      EXPECT_EQ(group.receive(&word, sizeof word, 1).code(), ErrorCode::cancelled);
      while (went_on < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // its engine lives meanwhile
      return;
    }
    EXPECT_EQ(group.run({}).code(), ErrorCode::cancelled);
    auto rest = group.shrink();
    EXPECT_TRUE(rest) << rest.status().to_string();
    ++went_on;
    if (!rest) return;
    EXPECT_EQ(rest->size(), 2);
    EXPECT_TRUE(rest->run({}));
  });
}

TEST_P(Aborts, WhatWasStartedEndsAndLeavesTheMemoryAlone) {
  std::atomic<bool> started{false};  // until then the other rank does nothing, or the first one may be over by then
  run_group(options_for(2, GetParam()), [&started](Engine&, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    std::vector<float> values(3 << 20, 1);
    Collective sum;
    sum.kind = CollectiveKind::all_reduce;
    sum.input = sum.output = values.data();
    sum.count = values.size();
    sum.type = DataType::f32;
    if (group.rank() == 1) {
      while (!started) std::this_thread::yield();
      EXPECT_EQ(group.run(sum).code(), ErrorCode::cancelled);
      return;
    }
    const auto first = group.start(sum), second = group.start(sum);
    started = true;
    ASSERT_TRUE(first && second);
    group.abort();
    EXPECT_TRUE(group.test(*second));
    EXPECT_EQ(group.wait(*first).code(), ErrorCode::cancelled);
    EXPECT_EQ(group.wait(*second).code(), ErrorCode::cancelled);
    EXPECT_EQ(group.wait(*second).code(), ErrorCode::not_found);
    expect_over(group, 0);
  });
}

TEST_P(Aborts, AMessageThatIsAwaitedEnds) {
  run_group(options_for(2, GetParam()), [](Engine&, Communicator& group) {
    if (group.rank() == 1) {
      EXPECT_EQ(group.run({}).code(), ErrorCode::cancelled);
      return;
    }
    std::thread other([&group] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group.abort();
    });
    int word = 0;
    const Status status = group.receive(&word, sizeof word, 1);
    other.join();
    EXPECT_EQ(status.code(), ErrorCode::cancelled) << status.to_string();
  });
}

// While ranks work at full speed, many times: for a sanitizer, too.
TEST_P(Aborts, AtAnyMoment) {
  for (int round = 0; round < 10; ++round)
    run_group(options_for(2, GetParam()), [round](Engine&, Communicator& group) {
      std::thread other;
      if (group.rank() == 0)
        other = std::thread([&group, round] {
          std::this_thread::sleep_for(std::chrono::microseconds(round * 777));
          group.abort();
        });
      Status status;
      while (status) status = group.run({});
      if (other.joinable()) other.join();
      EXPECT_EQ(status.code(), ErrorCode::cancelled) << status.to_string();
      EXPECT_EQ(group.failure().rank, 0);
    });
}

}  // namespace
}  // namespace fairway
