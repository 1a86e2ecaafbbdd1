#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fairway/progress.h"

#include "collectives/host/choose.h"
#include "collectives/host/schedule.h"
#include "sim/group_measure.h"

// Communicators of many ranks in virtual time: the same engines, control and collectives as anywhere else, each rank on
// a simulated host of its own.
namespace fairway::sim {
namespace {

std::string text_of(const GroupCall& call) {
  return std::string(to_string(call.kind)) + " by " + std::string(to_string(call.algorithm)) + " of " +
         std::to_string(call.bytes()) + " bytes on " + std::to_string(call.ranks) + " ranks";
}

// `late`: by how much the time may be above the formula.
void expect_all_as_the_formulas_say(int ranks, std::uint64_t most, bool local = false, double late = kTolerance) {
  GroupOptions options;
  options.ranks = ranks;
  Group group(options);
  group.leave_open();
  ASSERT_TRUE(group.join());
  for (const GroupCall& call : calls_for(group, most, local)) {
    const GroupMeasured measured = measure(group, call);
    SCOPED_TRACE(text_of(call));
    ASSERT_EQ(measured.wrong, "");
    EXPECT_EQ(measured.messages, measured.formula_messages);
    EXPECT_EQ(measured.bytes, measured.formula_bytes);
    EXPECT_EQ(measured.unlike, -1) << "a rank that sends something else";
    EXPECT_GT(measured.time_ratio(), 1 - kTolerance) << measured.formula_ns / 1e3 << " us by the formula";
    EXPECT_LT(measured.time_ratio(), 1 + late)
        << measured.virtual_ns / 1e3 << " us, by the formula " << measured.formula_ns / 1e3;
  }
}

// Ranks of a host combine first. The links are all alike here, so it shows what is sent and what waits for what.
void expect_levels_as_the_formulas_say(int ranks, int per_host) {
  GroupOptions options;
  options.ranks = ranks;
  options.per_host = per_host;
  Group group(options);
  group.leave_open();
  ASSERT_TRUE(group.join());
  int tried = 0;
  for (const GroupCall& call : calls_for(group, 256U << 10)) {
    if (call.algorithm != Algorithm::hierarchical) continue;
    ++tried;
    const GroupMeasured measured = measure(group, call);
    SCOPED_TRACE(text_of(call) + ", hosts of " + std::to_string(per_host));
    ASSERT_EQ(measured.wrong, "");
    EXPECT_EQ(measured.messages, measured.formula_messages);
    EXPECT_EQ(measured.bytes, measured.formula_bytes);
    EXPECT_EQ(measured.unlike, -1);
    EXPECT_GT(measured.time_ratio(), 1 - kTolerance) << measured.formula_ns / 1e3 << " us by the formula";
    EXPECT_LT(measured.time_ratio(), 1 + kTolerance) << measured.formula_ns / 1e3 << " us by the formula";
  }
  EXPECT_GE(tried, 4);
}

TEST(SimulatedCollectives, InLevelsAreRightAndCostWhatTheFormulasSay) {
  for (const auto& [ranks, per_host] : {std::pair(16, 4), std::pair(16, 8), std::pair(64, 4)})
    expect_levels_as_the_formulas_say(ranks, per_host);
}

TEST(SimulatedCollectives, AreRightAndCostWhatTheFormulasSayOnSixtyFourRanks) {
  expect_all_as_the_formulas_say(64, 64U << 10);
}

TEST(SimulatedCollectives, WithLocalCompletionAreRightAndCostWhatTheFormulasSay) {
  for (const int ranks : {5, 16, 23, 40}) expect_all_as_the_formulas_say(ranks, 64U << 10, true);
}

// The virtual time, to the nanosecond: nothing of this machine's own time is in it.
TEST(SimulatedCollectives, TakeTheSameTimeEachTimeThatTheyAreSimulated) {
  const auto times = [] {
    GroupOptions options;
    options.ranks = 6;
    Group group(options);
    group.leave_open();
    EXPECT_TRUE(group.join());
    std::vector<double> all;
    for (const bool local : {false, true})
      for (const GroupCall& call : calls_for(group, 4U << 10, local)) all.push_back(measure(group, call).virtual_ns);
    return all;
  };
  const std::vector<double> once = times();
  EXPECT_GT(once.size(), 30U);
  for (int time = 0; time < 2; ++time) {
    std::this_thread::sleep_for(std::chrono::milliseconds(7));  // other ticks of the coarse clock
    EXPECT_EQ(times(), once);
  }
}

// A communicator holds a transfer of the engine for each other rank. With what little is left then, 512 ranks took up
// to seven times as long.
TEST(SimulatedCollectives, CostTheSameWithTheLeastRoomInTheEngines) {
  GroupOptions options;
  options.ranks = 24;
  options.max_transfers = 23 + 8;
  Group group(options);
  ASSERT_TRUE(group.join());
  for (const Algorithm algorithm : {Algorithm::recursive_doubling, Algorithm::direct}) {
    const GroupCall call{CollectiveKind::all_reduce, algorithm, options.ranks, 1, options.slot_bytes, 0};
    const GroupMeasured measured = measure(group, call);
    EXPECT_EQ(measured.wrong, "");
    EXPECT_GT(measured.time_ratio(), 0.9) << to_string(algorithm);
    EXPECT_LT(measured.time_ratio(), 1.1) << to_string(algorithm);
  }
}

TEST(SimulatedCollectives, AreRefusedWithLessRoomInTheEngines) {
  GroupOptions options;
  options.ranks = 24;
  for (const std::uint32_t room : {23U, 23U + 7}) {
    options.max_transfers = room;
    Group group(options);
    const Status joined = group.join();
    EXPECT_EQ(joined.code(), ErrorCode::resource_exhausted) << room << ": " << joined.to_string();
    EXPECT_NE(joined.to_string().find("max_transfers"), std::string::npos) << joined.to_string();
  }
}

// `fairway who-hangs` tells of processes; a simulated rank is none.
TEST(SimulatedCollectives, TellNobodyOnThisMachineOfTheirProgress) {
  GroupOptions options;
  options.ranks = 3;
  Group group(options);
  ASSERT_TRUE(group.join());
  for (const RankProgress& one : progress_of_ranks()) EXPECT_NE(one.process, static_cast<std::uint64_t>(::getpid()));
}

TEST(SimulatedCollectives, AreRightAndCostWhatTheFormulasSayOnAnOddNumberOfRanks) {
  // Ranks that first take another's part are behind the others, whose next messages then meet what they still receive:
  // two share their NIC, which no formula counts.
  expect_all_as_the_formulas_say(23, 512U << 10, false, 0.15);
}

TEST(SimulatedCollectivesLarge, OfMuchDataAreRightAndCostWhatTheFormulasSay) {
  // The root of a gather hears the others' ends, too, through the NIC by which their blocks still come: as above.
  expect_all_as_the_formulas_say(64, 2U << 20, false, 0.15);
}

TEST(SimulatedCollectivesLarge, AreRightAndCostWhatTheFormulasSayOnHundredsOfRanks) {
  expect_all_as_the_formulas_say(256, 4096);
}

// The formulas know nothing of the schedules, so an error would have to be made twice.
TEST(SimulatedCollectives, FormulasCountWhatTheSchedulesSend) {
  for (int ranks = 2; ranks <= 40; ++ranks)
    for (const CollectiveKind kind :
         {CollectiveKind::barrier, CollectiveKind::all_reduce, CollectiveKind::reduce, CollectiveKind::broadcast,
          CollectiveKind::all_gather, CollectiveKind::gather, CollectiveKind::scatter, CollectiveKind::reduce_scatter,
          CollectiveKind::all_to_all})
      for (const Algorithm algorithm : collectives::algorithms_of(kind))
        for (const std::uint64_t count : {1U, 7U, 64U, 200U}) {
          const GroupCall call{kind, algorithm, ranks, kind == CollectiveKind::barrier ? 0 : count, 256, ranks / 3};
          for (int rank = 0; rank < ranks; ++rank) {
            collectives::Shape shape;
            shape.kind = kind;
            shape.algorithm = algorithm;
            shape.rank = rank;
            shape.size = ranks;
            shape.root = call.root;
            shape.count = call.count;
            shape.element_bytes = 8;
            shape.piece_bytes = call.piece;
            collectives::Schedule schedule;
            collectives::make_schedule(shape, schedule);
            Sent sent;
            for (const collectives::Step& step : schedule.steps) {
              if (step.kind != collectives::Step::Kind::send) continue;
              ++sent.messages;
              sent.bytes += step.bytes + 64;
            }
            const Sent formula = expected_sent(call, rank);
            ASSERT_EQ(sent.messages, formula.messages) << text_of(call) << ", rank " << rank;
            ASSERT_EQ(sent.bytes, formula.bytes) << text_of(call) << ", rank " << rank;
          }
        }
}

}  // namespace
}  // namespace fairway::sim
