#include "sim/strand.h"

#include <vector>

#include <gtest/gtest.h>

namespace fairway::sim {
namespace {

struct Two {
  Simulation simulation{SimulationOptions{}};
  Host& first = simulation.add_host();
  Host& second = simulation.add_host();
  Strand one{first}, other{second};
  std::atomic<std::uint32_t> word{0};

  void run() {
    while (!one.ended() || !other.ended())
      if (!simulation.step()) break;
  }
};

TEST(Strand, AProgramThatWaitsLetsOthersRunUntilItsDeadline) {
  Two two;
  const Time begun = two.simulation.now();
  std::vector<Time> order;
  const auto program = [&](Host& host, Time waits) {
    return [&, waits] {
      host.wait(two.word, 0, host.now() + waits);
      order.push_back(two.simulation.now() - begun);
    };
  };
  two.one.start(program(two.first, 5 * kMillisecond), begun);
  two.other.start(program(two.second, 2 * kMillisecond), begun);
  two.run();
  EXPECT_EQ(order, (std::vector<Time>{2 * kMillisecond, 5 * kMillisecond}));
}

TEST(Strand, AProgramIsWokenByItsHostAlone) {
  Two two;
  const Time begun = two.simulation.now();
  Time ended = 0;
  two.one.start(
      [&] {
        while (two.word.load() == 0) two.first.wait(two.word, 0, kNever);
        ended = two.simulation.now() - begun;
      },
      begun);
  two.other.start(
      [&] {
        EXPECT_FALSE(two.other.pause(begun + kMillisecond));
        two.word = 1;
        two.second.wake_all(two.word);
        EXPECT_FALSE(two.other.pause(begun + 2 * kMillisecond));
        two.first.wake_all(two.word);
      },
      begun);
  two.run();
  EXPECT_TRUE(two.one.ended());
  EXPECT_GT(ended, 2 * kMillisecond);
  EXPECT_LT(ended, 3 * kMillisecond);
}

TEST(Strand, AFrozenHostsProgramDoesNotRun) {
  Two two;
  const Time begun = two.simulation.now();
  Time ended = 0;
  two.one.start(
      [&] {
        two.one.pause(begun + kMillisecond);
        ended = two.simulation.now() - begun;
      },
      begun);
  two.other.start(
      [&] {
        two.first.freeze();
        two.other.pause(begun + 7 * kMillisecond);
        EXPECT_EQ(ended, 0u);
        two.first.thaw();
      },
      begun + 10);
  two.run();
  EXPECT_TRUE(two.one.ended());
  EXPECT_GE(ended, 7 * kMillisecond);
}

}  // namespace
}  // namespace fairway::sim
