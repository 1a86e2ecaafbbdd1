#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "collectives/host/choose.h"
#include "process/collectives/combining.h"
#include "process/collectives/group.h"
#include "support/sanitized.h"

// The same bits, whatever the algorithm, the links and the pieces: every element is combined in the order of ranks.
namespace fairway {
namespace {

// Of "hosts" sums are combined within a host first, if they may be.
GroupOptions group_over(int size, const std::string& links, std::uint32_t slot_bytes) {
  GroupOptions options = fairway::group_over(size, links);
  options.communicator.slot_bytes = slot_bytes;
  return options;
}

std::vector<float> random_values(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) * 77 + 5);
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(mantissa(random), static_cast<int>(random() % 40) - 20);
  return values;
}

// Added one rank after the other, from the first or from the last on.
std::vector<float> summed(int size, std::size_t count, bool backwards = false) {
  std::vector<float> sum = random_values(backwards ? size - 1 : 0, count);
  for (int i = 1; i < size; ++i) {
    const auto next = random_values(backwards ? size - 1 - i : i, count);
    for (std::size_t at = 0; at < count; ++at) sum[at] += next[at];
  }
  return sum;
}

struct Reproducible : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Reproducible, testing::Values("shm", "tcp", "hosts"),
                         [](const auto& info) { return info.param; });

TEST_P(Reproducible, GivesTheSameBitsByEveryAlgorithmAndPiece) {
  constexpr std::size_t kCount = 421;
  for (const int size : {2, 3, 4, 6, 7}) {
    if (kSanitized && size > 4) continue;
    const std::vector<float> want = summed(size, kCount * static_cast<std::size_t>(size));
    // Else any order would do.
    ASSERT_EQ(summed(size, want.size(), true) == want, size == 2);
    for (const std::uint32_t slot : {64U, 1000U, 0U})
      run_group(group_over(size, GetParam(), slot), [&](Engine&, Communicator& communicator) {
        const int rank = communicator.rank();
        for (const CollectiveKind kind : kCombining) {
          std::vector<Algorithm> algorithms{Algorithm::automatic};
          for (const Algorithm each : collectives::algorithms_of(kind, true)) algorithms.push_back(each);
          for (const bool in_place : {false, true})
            for (const Algorithm algorithm : algorithms) {
              auto input = random_values(rank, inputs_of(kind, size, kCount));
              std::vector<float> output(kCount);
              Collective call{.kind = kind, .count = kCount, .type = DataType::f32, .reproducible = true};
              call.algorithm = algorithm;
              call.input = input.data();
              call.output = in_place ? input.data() + first_of(kind, rank, kCount) : output.data();
              const Status status = communicator.run(call);
              ASSERT_TRUE(status) << status.to_string();
              if (kind == CollectiveKind::reduce && rank != 0) continue;
              ASSERT_EQ(std::memcmp(call.output, want.data() + first_of(kind, rank, kCount), kCount * 4), 0)
                  << to_string(kind) << " by " << to_string(algorithm) << ", " << size << " ranks, slots of " << slot;
            }
        }
      });
  }
}

TEST_P(Reproducible, TakesNoOtherAlgorithmAndIsTheSameOnEveryRank) {
  run_group(group_over(4, GetParam(), 0), [](Engine&, Communicator& communicator) {
    float value = 1;
    Collective call{
        .kind = CollectiveKind::all_reduce, .input = &value, .output = &value, .count = 1, .type = DataType::f32};
    call.reproducible = true;
    for (const Algorithm other : {Algorithm::ring, Algorithm::recursive_doubling, Algorithm::hierarchical}) {
      call.algorithm = other;
      const Status status = communicator.run(call);
      EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
      EXPECT_NE(status.message().find("in the order of ranks"), std::string::npos) << status.to_string();
    }
    call.algorithm = Algorithm::direct;
    call.reproducible = communicator.rank() == 0;
    const Status differs = communicator.run(call);
    EXPECT_EQ(differs.code(), ErrorCode::invalid_argument);
    EXPECT_NE(differs.message().find("by direct in the order of ranks"), std::string::npos) << differs.to_string();
  });
}

}  // namespace
}  // namespace fairway
