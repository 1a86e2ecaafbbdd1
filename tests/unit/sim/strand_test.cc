#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "fault/promises/cluster.h"
#include "sim/fiber.h"

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

// As two threads of a process: each registers memory, writes from it, waits, and deregisters it, at any point of the
// other's calls.
TEST(Strand, TwoProgramsOfOneEngineDoNotDisturbEachOther) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    promises::Cluster cluster(seed);
    auto& a = cluster.add({promises::nic()});
    auto& b = cluster.add({promises::nic()});
    const auto road = cluster.connect(a, b);
    const auto program = [&](std::uint64_t far) {
      return [&, far] {
        for (std::uint8_t i = 1; i <= 8; ++i) {
          std::vector<std::uint8_t> own(1024, i);
          const auto region = a.engine->register_memory(own.data(), own.size(), Access::all);
          ASSERT_TRUE(region) << region.status().to_string();
          const auto write = a.engine->write(road.peer, Extent{{region->id, 0, own.size()}, {road.memory.id, far}});
          ASSERT_TRUE(write) << write.status().to_string();
          const auto done = a.engine->wait(*write, std::chrono::seconds(5));
          ASSERT_TRUE(done) << done.status().to_string();
          EXPECT_TRUE(done->status) << done->status.to_string();
          const Status ended = a.engine->deregister(*region, std::chrono::seconds(5));
          EXPECT_TRUE(ended) << ended.to_string();
          EXPECT_TRUE(std::all_of(b.data() + far, b.data() + far + own.size(), [i](auto byte) { return byte == i; }));
        }
      };
    };
    Strand one(*a.host), other(*a.host);
    one.start(program(0), cluster.simulation().now());
    other.start(program(4096), cluster.simulation().now());
    EXPECT_TRUE(cluster.run_until(60 * kSecond, [&] { return one.ended() && other.ended(); }));
  }
}

}  // namespace
}  // namespace fairway::sim
