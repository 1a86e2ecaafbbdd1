#include "transport/janitor.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/few_threads.h"
#include "sys/system_runtime.h"

namespace fairway::transport {
namespace {

struct JanitorTest : testing::Test {
  sys::SystemRuntime system;
  Runtime real = system.runtime();
  support::FewThreads threads{real.executor};
  Runtime runtime{real.clock, real.rng, threads, real.network};
};

TEST_F(JanitorTest, WhatItTookIsDoneInOrderByAnotherThread) {
  threads.none = false;
  std::vector<int> done;
  std::thread::id by = std::this_thread::get_id();
  {
    Janitor janitor(runtime, "fairway-test");
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(janitor.post([&, i] {
        done.push_back(i);
        by = std::this_thread::get_id();
      }));
    janitor.end([&] { done.push_back(3); });
  }
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(JanitorTest, WhatComesWhileItFinishesIsDoneBehindWhatWasThere) {
  threads.none = false;
  for (int round = 0; round < 50; ++round) {
    Janitor janitor(runtime, "fairway-test");
    std::atomic<int> running{0}, done{0};
    std::atomic<bool> began{false};
    const auto job = [&](int number) {
      return [&, number] {
        EXPECT_EQ(running.fetch_add(1), 0) << "two threads at once";
        began = true;
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        EXPECT_EQ(done.exchange(number), number - 1) << "out of order";
        --running;
      };
    };
    EXPECT_TRUE(janitor.post(job(1)));
    EXPECT_TRUE(janitor.post(job(2)));
    while (!began) std::this_thread::yield();
    std::thread finisher([&] { janitor.finish(); });
    for (int i = 0; i < round; ++i) std::this_thread::yield();
    EXPECT_TRUE(janitor.post(job(3)));
    finisher.join();
    janitor.finish();
    EXPECT_EQ(done, 3);
  }
}

TEST_F(JanitorTest, WithoutAThreadItSaysWhyAndWhatHasToHappenIsDoneAtOnce) {
  Janitor janitor(runtime, "fairway-test");
  bool began = false, ended = false;
  const Status refused = janitor.post([&] { began = true; });
  EXPECT_EQ(refused.message(), "cannot start the thread fairway-test");
  janitor.end([&] { ended = true; });
  EXPECT_TRUE(ended);
  janitor.finish();
  EXPECT_FALSE(began) << "it was refused: who asked for it was told";
}

TEST_F(JanitorTest, AThreadThatIsToBeHadLaterIsTakenThen) {
  std::atomic<int> done{0};
  Janitor janitor(runtime, "fairway-test");
  EXPECT_FALSE(janitor.post([&] { ++done; }));
  threads.none = false;
  EXPECT_TRUE(janitor.post([&] { ++done; }));
  janitor.finish();
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace fairway::transport
