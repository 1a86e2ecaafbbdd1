#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/simulate.h"

// The real engine and control on simulated clocks, sockets and NICs. `fairway sim --seeds A..B` runs more seeds.
namespace fairway {
namespace {

SimulationReport run(std::uint64_t seed, std::vector<std::string>* trace = nullptr,
                     std::vector<std::string> faults = {}, std::uint32_t drift = SimulationRequest().drift) {
  SimulationRequest request;
  request.seed = seed;
  request.drift = drift;
  request.faults = std::move(faults);
  if (trace) request.trace = [trace](const std::string& line) { trace->push_back(line); };
  request.hopeless = [seed](const std::string& why) {
    std::fprintf(stderr, "seed %llu hangs: %s; replay: fairway sim --seed %llu --trace\n",
                 static_cast<unsigned long long>(seed), why.c_str(), static_cast<unsigned long long>(seed));
    std::_Exit(1);
  };
  return simulate(request);
}

class Campaign : public testing::TestWithParam<int> {};

TEST(Simulate, OneSeedIsOneRunEventByEvent) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<std::string> first, second;
    const SimulationReport a = run(seed, &first), b = run(seed, &second), silent = run(seed);
    EXPECT_EQ(a.hash, b.hash);
    EXPECT_EQ(a.hash, silent.hash) << "tracing changes nothing";
    EXPECT_EQ(first, second);
    EXPECT_GT(first.size(), 5u);
  }
}

TEST(Simulate, AnotherSeedIsAnotherRun) {
  EXPECT_NE(run(1).hash, run(2).hash);
}

TEST(Simulate, FaultsHappenAndLateFramesAreStopped) {
  std::uint64_t faults = 0, stopped = 0, failed = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const SimulationReport report = run(seed);
    faults += report.faults;
    stopped += report.late_stopped;
    failed += report.transfers - report.succeeded;
  }
  EXPECT_GT(faults, 50u);
  EXPECT_GT(stopped, 50u);
  EXPECT_GT(failed, 50u);
}

// A situation that no seed meets is not tested, however many seeds pass.
TEST(Simulate, EveryKindOfEndOccurs) {
  SimulationCoverage met;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const SimulationCoverage one = run(seed).coverage;
    met.cancels_fenced += one.cancels_fenced;
    met.cancels_not_fenced += one.cancels_not_fenced;
    met.deregisters_fenced += one.deregisters_fenced;
    met.deregisters_not_fenced += one.deregisters_not_fenced;
    met.garbled += one.garbled;
    met.mismatches += one.mismatches;
    met.deaths += one.deaths;
    met.sends_held_back += one.sends_held_back;
    met.moves_at_once += one.moves_at_once;
    met.sends_at_once += one.sends_at_once;
    met.computations += one.computations;
    met.one_way_cuts += one.one_way_cuts;
    met.slow_paths += one.slow_paths;
    met.mtu_holes += one.mtu_holes;
  }
  EXPECT_GT(met.cancels_fenced, 200u);
  EXPECT_GT(met.cancels_not_fenced, 5u) << "a NIC held the slices";
  EXPECT_GT(met.deregisters_fenced, 100u);
  EXPECT_GT(met.deregisters_not_fenced, 2u) << "a NIC held the slices";
  EXPECT_GT(met.garbled, 50u);
  EXPECT_GT(met.mismatches, 50u);
  EXPECT_GT(met.deaths, 10u);
  EXPECT_GT(met.sends_held_back, 20u);
  EXPECT_GT(met.moves_at_once, 40u);
  EXPECT_GT(met.sends_at_once, 40u);
  EXPECT_GT(met.computations, 5u);
  EXPECT_GT(met.one_way_cuts, 5u);
  EXPECT_GT(met.slow_paths, 5u);
  EXPECT_GT(met.mtu_holes, 5u);
}

// Each kind by itself, so that no other hides what it does.
TEST(Simulate, FaultsOfAKindThatIsNamedAreOfThatKindAndPromisesHold) {
  for (const std::string& kind : simulated_faults()) {
    SCOPED_TRACE(kind);
    std::uint64_t faults = 0;
    SimulationCoverage met;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const SimulationReport report = run(seed, nullptr, {kind});
      EXPECT_TRUE(report.passed) << "replay: fairway sim --seed " << seed << " --faults " << kind << " --trace\n"
                                 << report.failure;
      faults += report.faults;
      met.one_way_cuts += report.coverage.one_way_cuts;
      met.slow_paths += report.coverage.slow_paths;
      met.mtu_holes += report.coverage.mtu_holes;
    }
    EXPECT_GT(faults, 40u);
    EXPECT_EQ(met.one_way_cuts != 0, kind == "one_way");
    EXPECT_EQ(met.slow_paths != 0, kind == "slow_path");
    EXPECT_EQ(met.mtu_holes != 0, kind == "mtu_hole");
  }
}

// Real ones do by 50 millionths; by one in a hundred what is bounded in time must still not depend on whose time it is.
TEST(Simulate, PromisesHoldThoughClocksDriftApart) {
  std::uint64_t drifting = 0, other = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const SimulationReport report = run(seed, nullptr, {}, 10'000);
    EXPECT_TRUE(report.passed) << "replay: fairway sim --seed " << seed << " --drift 10000 --trace\n" << report.failure;
    drifting += report.coverage.drifting_clocks;
    const SimulationReport alike = run(seed, nullptr, {}, 0);
    EXPECT_EQ(alike.coverage.drifting_clocks, 0u);
    other += alike.hash != report.hash ? 1 : 0;
  }
  EXPECT_GT(drifting, 100u);
  EXPECT_GT(other, 50u) << "what happens when depends on it";
}

TEST_P(Campaign, KeepsEveryPromise) {
  constexpr int kSeeds = 250;
  for (int i = 1; i <= kSeeds; ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * kSeeds + i);
    std::fprintf(stdout, "%s", i % 50 == 1 ? ("from seed " + std::to_string(seed) + "\n").c_str() : "");
    std::fflush(stdout);
    const SimulationReport report = run(seed);
    EXPECT_TRUE(report.passed) << "seed " << seed << "; replay: fairway sim --seed " << seed << " --trace\n"
                               << report.failure;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Campaign, testing::Range(0, 4));

}  // namespace
}  // namespace fairway
