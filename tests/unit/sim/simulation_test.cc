#include "sim/simulation.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/host.h"

namespace fairway::sim {
namespace {

SimulationOptions seeded(std::uint64_t seed) {
  SimulationOptions options;
  options.seed = seed;
  return options;
}

// Counts its steps and asks for what a test wants next.
class Counting final : public Stepper {
 public:
  Time step(Time now) override {
    times.push_back(now);
    return next;
  }
  Time next = kNever;
  std::vector<Time> times;
};

struct Log {
  std::vector<std::uint64_t> order;
  static void add(void* log, std::uint64_t value, std::uint64_t) { static_cast<Log*>(log)->order.push_back(value); }
};

}  // namespace

TEST(Simulation, EventsRunInTheOrderOfTime) {
  Simulation simulation(seeded(1));
  Log log;
  for (const std::uint64_t delay : {30, 10, 20}) simulation.in(delay, &Log::add, &log, delay);
  simulation.run_until(simulation.now() + 100);
  EXPECT_EQ(log.order, (std::vector<std::uint64_t>{10, 20, 30}));
}

TEST(Simulation, TiesAreBrokenByTheSeedAndTheSeedAlone) {
  const auto order = [](std::uint64_t seed) {
    Simulation simulation(seeded(seed));
    Log log;
    for (std::uint64_t i = 0; i < 20; ++i) simulation.in(5, &Log::add, &log, i);
    simulation.run_until(simulation.now() + 100);
    return std::pair(log.order, simulation.hash());
  };
  EXPECT_EQ(order(3), order(3));
  EXPECT_NE(order(3).first, order(4).first);
}

TEST(Simulation, ASleepingTaskRunsOnlyWhenWoken) {
  Simulation simulation(seeded(1));
  Host& host = simulation.add_host();
  Counting counting;
  auto task = host.start({}, counting);
  ASSERT_TRUE(task);
  simulation.run_until(simulation.now() + kSecond);
  EXPECT_EQ(counting.times.size(), 1u);
  (*task)->wake();
  (*task)->wake();
  simulation.run_until(simulation.now() + kSecond);
  EXPECT_EQ(counting.times.size(), 2u) << "wakes coalesce";
  counting.next = host.now() + kMillisecond;
  (*task)->wake();
  simulation.run_until(simulation.now() + 500 * kMicrosecond);
  EXPECT_EQ(counting.times.size(), 3u);
  const Time due = counting.next;
  counting.next = kNever;
  simulation.run_until(simulation.now() + kSecond);
  ASSERT_EQ(counting.times.size(), 4u);
  EXPECT_EQ(counting.times.back(), due) << "on the host's own clock";
  task->reset();
}

// By the simulation's time a timer is then early, by a host's own never.
TEST(Simulation, ClocksThatDriftRunApartAndTimersGoByTheirOwn) {
  SimulationOptions options = seeded(5);
  options.drift = 200;
  Simulation simulation(options);
  const Time hour = 3600 * kSecond;
  for (int i = 0; i < 8; ++i) {
    Host& host = simulation.add_host();
    Counting counting;
    auto task = host.start({}, counting);
    simulation.run_until(simulation.now() + kMillisecond);
    const Time began = simulation.now(), there = host.now();
    counting.next = there + hour;
    (*task)->wake();
    simulation.run_until(began + kSecond);
    const Time due = std::exchange(counting.next, kNever);
    simulation.run_until(began + hour);
    const Time gained = host.now() - there - hour;
    EXPECT_LE(gained, hour / 1'000'000 * 200);
    EXPECT_EQ(gained / (hour / 1'000'000), host.drift());
    simulation.run_until(began + hour + kSecond);
    ASSERT_EQ(counting.times.size(), 3u) << "its first step, the wake and the timer";
    EXPECT_GE(counting.times.back(), due);
    EXPECT_LE(counting.times.back(), due + 2) << "the first moment at which its clock reads that";
    task->reset();
  }
  EXPECT_GE(simulation.drifting_clocks(), 7u);
}

TEST(Simulation, AFrozenHostRunsNothingAndCatchesUpWhenThawed) {
  Simulation simulation(seeded(1));
  Host& host = simulation.add_host();
  Counting counting;
  auto task = host.start({}, counting);
  simulation.run_until(simulation.now() + kMillisecond);
  host.freeze();
  (*task)->wake();
  simulation.run_until(simulation.now() + kSecond);
  EXPECT_EQ(counting.times.size(), 1u);
  host.thaw();
  simulation.run_until(simulation.now() + kSecond);
  EXPECT_EQ(counting.times.size(), 2u);
  host.kill();
  (*task)->wake();
  simulation.run_until(simulation.now() + kSecond);
  EXPECT_EQ(counting.times.size(), 2u);
  task->reset();
}

TEST(Simulation, AWaitLetsTheOthersRunAndEndsAtItsDeadline) {
  Simulation simulation(seeded(1));
  Host& host = simulation.add_host();
  std::atomic<std::uint32_t> word{0};
  simulation.in(
      5 * kMillisecond,
      [](void* at, std::uint64_t, std::uint64_t) { static_cast<std::atomic<std::uint32_t>*>(at)->store(1); }, &word);
  const Time began = host.now();
  host.wait(word, 0, kNever);
  EXPECT_EQ(host.now() - began, 5 * kMillisecond);
  host.wait(word, 1, host.now() + kMillisecond);
  EXPECT_EQ(host.now() - began, 6 * kMillisecond);
}

TEST(Simulation, AWaitThatNothingCanEndIsReported) {
  SimulationOptions options;
  std::string why;
  options.stuck = [&why](const std::string& what) { why = what; };
  Simulation simulation(options);
  Host& host = simulation.add_host();
  std::atomic<std::uint32_t> word{0};
  host.wait(word, 0, kNever);
  EXPECT_NE(why, "");
  EXPECT_TRUE(simulation.was_stuck());
}

}  // namespace fairway::sim
