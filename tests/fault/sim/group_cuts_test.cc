#include <array>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/group.h"

// Ranks of a simulated communicator between which the network is cut, in one direction or both, while all live.
namespace fairway::sim {
namespace {

constexpr int kCutRanks = 4;

struct Cut {
  int from = 0, to = 0;
};

struct End {
  CollectiveFailure failure;
  Time after = 0;  // since the cut, nearly
};

// What each rank says, once operations have failed on all.
std::array<End, kCutRanks> fail_by(const std::vector<Cut>& cuts, std::uint64_t seed) {
  std::array<End, kCutRanks> ends;  // they outlive the group
  GroupOptions options;
  options.ranks = kCutRanks;
  options.seed = seed;
  options.timeout = std::chrono::seconds(20);
  options.peer_timeout = std::chrono::milliseconds(500);
  Group group(options);
  if (const Status joined = group.join(); !joined) ADD_FAILURE() << joined.to_string();
  struct Both {
    Group& group;
    const std::vector<Cut>& cuts;
  } both{group, cuts};
  group.simulation().in(
      kMillisecond,
      [](void* given, std::uint64_t, std::uint64_t) {
        auto& [of, list] = *static_cast<Both*>(given);
        for (const Cut& cut : list)
          of.simulation().path(of.rank(cut.from).host->index(), of.rank(cut.to).host->index()).cut = true;
      },
      &both);
  const Time begun = group.simulation().now();
  const Status ran = group.run([&](Group::Rank& rank) {
    while (rank.communicator->run({})) {
    }
    ends[static_cast<std::size_t>(rank.number)] = {rank.communicator->failure(), group.simulation().now() - begun};
  });
  EXPECT_TRUE(ran) << ran.to_string();
  return ends;
}

// All blame the same rank, which lives: it is told so by those that hear it, long before its operation's deadline, and
// says who does not.
TEST(SimulatedCut, OneDirectionBetweenTwoRanksIsToldToAll) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto ends = fail_by({{0, 1}}, seed);
    for (int rank = 0; rank < kCutRanks; ++rank) {
      const auto& [failure, after] = ends[static_cast<std::size_t>(rank)];
      const std::string said = failure.status.to_string();
      EXPECT_EQ(failure.rank, 0) << "rank " << rank << ": " << said;
      EXPECT_LT(after, 3 * kSecond) << "rank " << rank << ": " << said;
      EXPECT_EQ(failure.status.code(), rank == 0 ? ErrorCode::link_failed : ErrorCode::peer_dead) << said;
      if (rank == 0) {
        EXPECT_NE(said.find("this rank lives, but rank 1 (10.0.0.2:7000) hears nothing of it"), said.npos) << said;
      }
    }
  }
}

// Nobody who lives is called dead by anybody: those that hear each other name the one that is cut off, and it says what
// it hears.
void expect_rank_2_cut_off(const std::vector<Cut>& cuts, int names, const char* says) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const auto ends = fail_by(cuts, seed);
    for (int rank = 0; rank < kCutRanks; ++rank) {
      const auto& [failure, after] = ends[static_cast<std::size_t>(rank)];
      const std::string said = fmt::format("seed {}, rank {}: {}", seed, rank, failure.status.to_string());
      EXPECT_LT(after, 3 * kSecond) << said;
      EXPECT_EQ(failure.rank, rank == 2 ? names : 2) << said;
      if (rank == 2) EXPECT_NE(said.find(says), said.npos) << said;
    }
  }
}

TEST(SimulatedCut, ARankThatNobodyHearsIsBlamedAndLearnsWhy) {
  expect_rank_2_cut_off({{2, 0}, {2, 1}, {2, 3}}, 2, "this rank lives, but ");
}

TEST(SimulatedCut, ARankThatHearsNobodyBlamesNobody) {
  expect_rank_2_cut_off({{0, 2}, {1, 2}, {3, 2}}, -1, "hears none of the others");
}

TEST(SimulatedCut, ARankThatIsCutOffBlamesNobody) {
  expect_rank_2_cut_off({{2, 0}, {2, 1}, {2, 3}, {0, 2}, {1, 2}, {3, 2}}, -1, "hears none of the others");
}

}  // namespace
}  // namespace fairway::sim
