#include "engine/waiting.h"

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fake_runtime.h"

namespace fairway::engine {
namespace {

struct Waiter {
  explicit Waiter(Progress progress) : waiting(fake.runtime(), progress, workers) { EXPECT_TRUE(waiting.open()); }
  FakeRuntime fake;
  FakeWorkers workers;
  std::atomic<std::uint32_t> word{0};
  Waiting waiting;
};

TEST(Waiting, WithThreadsACallerSleepsUntilANoticeOrItsDeadline) {
  Waiter w(Progress::threads);
  int notices = 0;
  w.fake.on_sleep = [&](Time) {
    ++notices;
    w.waiting.notice();
  };
  EXPECT_TRUE(w.waiting.wait_until(kNever, [&] { return notices == 3; }));
  w.fake.on_sleep = [&](Time deadline) { w.fake.time = deadline; };
  const Time until = w.fake.time + kMillisecond;
  EXPECT_FALSE(w.waiting.wait_until(until, [] { return false; }));
  EXPECT_EQ(w.fake.sleeps.back(), until);
  EXPECT_EQ(w.workers.steps, 0);
}

TEST(Waiting, WhatNeverComesIsLateAndAfterTheEndClosed) {
  Waiter w(Progress::threads);
  bool there = false;
  const auto wait = [&] { return w.waiting.wait_for(std::chrono::milliseconds(1), "none", [&] { return there; }); };
  EXPECT_EQ(wait().code(), ErrorCode::timed_out);
  EXPECT_TRUE(w.waiting.close());
  EXPECT_EQ(wait().code(), ErrorCode::timed_out) << "something may still come while close() is at work";
  w.workers.here = true;  // a callback, for which close() waits
  EXPECT_EQ(wait().code(), ErrorCode::closed);
  w.workers.here = false;
  w.waiting.ended();
  EXPECT_EQ(wait().code(), ErrorCode::closed);
  there = true;  // what came before the end is there to be taken
  EXPECT_TRUE(wait());
}

TEST(Waiting, ACallerMayActInTheWorkersPlaceBetweenTwoSteps) {
  Waiter w(Progress::caller);
  int acted = 0;
  const auto act = [&] { return w.waiting.in_their_place([&] { ++acted; }); };
  w.workers.on_step = [&] { EXPECT_FALSE(act()) << "inside a step it is taken"; };
  w.waiting.drive();
  EXPECT_EQ(acted, 0);
  while (act() && acted < 1000) {
  }
  EXPECT_EQ(acted, 64) << "then a step is due";
  w.waiting.drive();
  EXPECT_TRUE(act());
  const int steps = w.workers.steps;
  w.waiting.drive_if_due();
  EXPECT_EQ(w.workers.steps, steps);
  while (acted < 64 + 40) ASSERT_TRUE(act());
  w.waiting.drive_if_due();
  EXPECT_EQ(w.workers.steps, steps + 1);
  w.waiting.stop();
  EXPECT_FALSE(act());
}

TEST(Waiting, CallsThatMayNotWaitMakeAStepNowAndThen) {
  Waiter w(Progress::caller);
  for (int call = 0; call < 31; ++call) EXPECT_FALSE(w.waiting.wait_until(0, [] { return false; }));
  EXPECT_EQ(w.workers.steps, 0) << "who polls besides makes its own steps";
  for (int call = 0; call < 320; ++call) EXPECT_FALSE(w.waiting.wait_until(0, [] { return false; }));
  EXPECT_EQ(w.workers.steps, 10);
  Waiter by_threads(Progress::threads);
  for (int call = 0; call < 320; ++call) EXPECT_FALSE(by_threads.waiting.wait_until(0, [] { return false; }));
  EXPECT_EQ(by_threads.workers.steps, 0);
}

TEST(Waiting, AStepOfAPollPutsCompletionsIntoItsRoom) {
  Waiter w(Progress::caller);
  std::array<Completion, 2> room;
  w.workers.to_poll = 3;
  w.workers.on_step = [&] { EXPECT_EQ(w.waiting.drive_before_poll(false, room), 0u) << "inside a step"; };
  EXPECT_EQ(w.waiting.drive_before_poll(true, room), 0u) << "something is there already: no step";
  EXPECT_EQ(w.waiting.drive_before_poll(false, room), 2u);
  EXPECT_EQ(room[1].bytes, 8u);
  w.waiting.drive();
  EXPECT_EQ(w.workers.to_poll, 1) << "nobody polls in this one";
  EXPECT_EQ(w.waiting.drive_before_poll(false, room), 1u);
  w.workers.to_poll = 1;
  w.waiting.stop();
  EXPECT_EQ(w.waiting.drive_before_poll(false, room), 0u);
  Waiter threads(Progress::threads);
  threads.workers.to_poll = 1;
  EXPECT_EQ(threads.waiting.drive_before_poll(false, room), 0u);
}

TEST(Waiting, ANoticeWakesThoseWhoSleepAndCostsNothingWhereNobodyDoes) {
  Waiter w(Progress::caller);
  w.waiting.notice();
  EXPECT_EQ(w.fake.wakes, 0);
  w.workers.on_step = [&] {  // who waits meanwhile does not step: it sleeps on the count of notices
    w.fake.on_sleep = [&](Time) { w.waiting.notice(); };
    w.waiting.wait_for_notice(kNever);
  };
  w.waiting.drive();
  EXPECT_EQ(w.fake.wakes, 1);
  w.waiting.notice();
  EXPECT_EQ(w.fake.wakes, 1);
  EXPECT_TRUE(w.fake.descriptor->is_set) << "who sleeps on the descriptor is told in any case";
  Waiter threads(Progress::threads);
  threads.waiting.notice();
  EXPECT_EQ(threads.fake.wakes, 1);
}

TEST(Waiting, ACallerStepsUntilItsWordChanges) {
  Waiter w(Progress::caller);
  w.workers.next = 0;
  w.workers.on_step = [&] { w.word = w.workers.steps == 3; };
  w.waiting.wait(w.word, 0, kNever);
  EXPECT_EQ(w.workers.steps, 3);
  EXPECT_TRUE(w.fake.descriptor->waits.empty());
  EXPECT_TRUE(w.fake.descriptor->is_set) << "who sleeps on the descriptor is to look again";
}

TEST(Waiting, ACallerSleepsNoLongerThanTheWorkersTimer) {
  Waiter w(Progress::caller);
  const Time timer = w.fake.time + kMillisecond, until = w.fake.time + 2 * kMillisecond;
  w.workers.next = timer;
  w.workers.on_step = [&] { w.workers.next = w.workers.steps == 1 ? timer : kNever; };
  w.waiting.wait(w.word, 0, until);
  EXPECT_EQ(w.fake.descriptor->waits, (std::vector{timer, until}));
  EXPECT_EQ(w.workers.woken, 2);
}

TEST(Waiting, ACallerDoesNotSleepOverWorkThatCame) {
  Waiter w(Progress::caller);
  w.workers.quiet = false;
  w.workers.on_step = [&] { w.word = w.workers.steps == 3; };
  w.waiting.wait(w.word, 0, kNever);
  EXPECT_EQ(w.workers.prepared, 2);
  EXPECT_TRUE(w.fake.descriptor->waits.empty());
}

TEST(Waiting, InsideAStepNobodyStepsAgain) {
  Waiter w(Progress::caller);
  w.workers.on_step = [&] {
    w.waiting.drive();
    w.waiting.settle();
    w.word = 1;
  };
  w.waiting.drive();
  EXPECT_EQ(w.workers.steps, 1);
  // One that waits there looks again after a while instead.
  std::atomic<std::uint32_t> inner{0};
  w.workers.on_step = [&] { w.waiting.wait(inner, 0, kNever); };
  w.waiting.drive();
  EXPECT_EQ(w.workers.steps, 2);
  EXPECT_EQ(w.fake.sleeps, (std::vector{kSecond + kMillisecond}));
}

// Another thread polls `polls` times, with `pause` between, while this one sleeps in its turn. Whether that one has the
// turn afterwards.
bool takes_the_turn(int polls, Time pause) {
  Waiter w(Progress::caller);
  w.fake.descriptor->on_wait = [&](Time) {
    if (w.fake.descriptor->waits.size() > 1) {  // it goes on to wait
      w.word = 1;
      return;
    }
    std::thread other([&] {
      for (int i = 0; i < polls; ++i) {
        w.fake.time += pause;
        w.waiting.drive();
      }
    });
    other.join();
  };
  w.fake.on_sleep = [&](Time) { w.word = 1; };
  w.waiting.wait(w.word, 0, kNever);
  EXPECT_EQ(w.fake.sleeps.size() + w.fake.descriptor->waits.size(), 2u);
  const int before = w.workers.steps;
  w.waiting.drive();
  EXPECT_EQ(w.workers.steps, before + 1) << "the turn is free again";
  return !w.fake.sleeps.empty();
}

TEST(Waiting, OneThatPollsWithoutAPauseTakesTheTurnFromOneThatWaits) {
  EXPECT_TRUE(takes_the_turn(17, kMicrosecond));
  EXPECT_FALSE(takes_the_turn(16, kMicrosecond));
  EXPECT_FALSE(takes_the_turn(40, kMillisecond));
}

TEST(Waiting, TheDescriptorIsReadableWhileSomethingIsLeft) {
  Waiter w(Progress::threads);
  w.waiting.settle();
  w.waiting.completed();
  EXPECT_FALSE(w.fake.descriptor->is_set) << "nobody asked for it";
  EXPECT_EQ(w.waiting.fd(), 7);
  EXPECT_TRUE(w.fake.descriptor->is_set) << "what came before nobody was told of";
  w.waiting.settle();
  (void)w.waiting.fd();
  EXPECT_FALSE(w.fake.descriptor->is_set);
  w.workers.left = true;
  w.waiting.settle();
  EXPECT_TRUE(w.fake.descriptor->is_set);
  w.workers.left = false;
  w.waiting.settle();
  EXPECT_FALSE(w.fake.descriptor->is_set);
  w.waiting.notice();
  EXPECT_TRUE(w.fake.descriptor->is_set);
  w.waiting.settle();
  w.waiting.completed();
  EXPECT_TRUE(w.fake.descriptor->is_set);
  EXPECT_EQ(w.workers.prepared, 0);
}

TEST(Waiting, TheDescriptorWakesACallerForItsWorkersTimers) {
  Waiter w(Progress::caller);
  w.workers.next = w.fake.time + kMillisecond;
  w.waiting.drive();
  w.waiting.settle();
  EXPECT_EQ(w.fake.descriptor->timer, kNever) << "nobody asked for the descriptor";
  (void)w.waiting.fd();
  w.waiting.settle();
  EXPECT_FALSE(w.fake.descriptor->is_set);
  EXPECT_EQ(w.fake.descriptor->timer, w.workers.next);
  w.workers.quiet = false;
  w.waiting.settle();
  EXPECT_TRUE(w.fake.descriptor->is_set) << "work came meanwhile";
  w.workers.quiet = true;
  w.workers.next = 0;
  w.waiting.drive();
  w.waiting.settle();
  EXPECT_TRUE(w.fake.descriptor->is_set) << "the last step left work";
}

TEST(Waiting, NobodyStepsWorkersThatStopped) {
  Waiter w(Progress::caller);
  EXPECT_TRUE(w.waiting.close());
  EXPECT_FALSE(w.waiting.close());
  EXPECT_TRUE(w.waiting.closed());
  w.waiting.drive();
  EXPECT_EQ(w.workers.steps, 1);
  w.waiting.stop();
  w.waiting.drive();
  w.waiting.wait(w.word, 0, w.fake.time + kMillisecond);
  EXPECT_EQ(w.workers.steps, 1);
  EXPECT_EQ(w.fake.sleeps.size(), 1u);
}

TEST(Waiting, WhoStillWaitsWhenTheWorkersHaveStoppedIsWokenByTheEnd) {
  Waiter w(Progress::caller);
  EXPECT_TRUE(w.waiting.close());
  w.waiting.stop();
  w.fake.on_sleep = [&](Time) {
    const int before = w.fake.wakes;
    w.waiting.ended();
    EXPECT_EQ(w.fake.wakes, before + 2) << "who waits for the end, and who waits for anything else";
  };
  EXPECT_EQ(w.waiting.wait_for(kForever, "none", [] { return false; }).code(), ErrorCode::closed);
  EXPECT_EQ(w.fake.sleeps.size(), 1u);
}

TEST(Waiting, DeadlinesNeitherOverflowNorLieInThePast) {
  Waiter w(Progress::threads);
  EXPECT_EQ(w.waiting.deadline(kForever), kNever);
  EXPECT_EQ(w.waiting.deadline(Timeout::max() - Timeout(1)), kNever);
  EXPECT_EQ(w.waiting.deadline(Timeout(0)), 0u);
  EXPECT_EQ(w.waiting.deadline(Timeout(-5)), 0u);
  EXPECT_EQ(w.waiting.deadline(Timeout(3)), w.fake.time + 3 * kMicrosecond);
}

}  // namespace
}  // namespace fairway::engine
