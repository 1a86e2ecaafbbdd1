#include "unit/collectives/schedule_time.h"

#include <gtest/gtest.h>

#include "support/sanitized.h"

// The cost model against the schedules in virtual time, with more ranks than any machine here has.
namespace fairway::collectives {
namespace {

constexpr std::uint64_t kLongest = 64 << 10;

std::string name_of(CollectiveKind kind, Algorithm algorithm, int size, std::uint64_t bytes) {
  return std::string(to_string(kind)) + " by " + std::string(to_string(algorithm)) + " of " + std::to_string(bytes) +
         " bytes on " + std::to_string(size) + " ranks";
}

// What the model leaves out: that a tree's pieces meet, and what bruck's packing holds up.
double tolerance(CollectiveKind kind, Algorithm algorithm, std::uint64_t bytes) {
  const bool packs = kind == CollectiveKind::all_to_all && algorithm == Algorithm::bruck;
  return packs || (kind == CollectiveKind::broadcast && bytes > kLongest) ? 0.2 : 0.1;
}

void compare(int size, std::uint64_t bytes, const Costs& costs) {
  for (const CollectiveKind kind :
       {CollectiveKind::barrier, CollectiveKind::all_reduce, CollectiveKind::reduce, CollectiveKind::broadcast,
        CollectiveKind::all_gather, CollectiveKind::gather, CollectiveKind::scatter, CollectiveKind::reduce_scatter,
        CollectiveKind::all_to_all})
    for (const Algorithm algorithm : algorithms_of(kind)) {
      const std::uint64_t all = bytes * static_cast<std::uint64_t>(size);
      if (kind == CollectiveKind::all_to_all && algorithm == Algorithm::bruck && all > (16U << 20)) continue;
      const bool few = kind == CollectiveKind::barrier || algorithm == Algorithm::binomial ||
                       algorithm == Algorithm::chain || algorithm == Algorithm::bruck ||
                       algorithm == Algorithm::recursive_doubling;  // messages
      if (size > 64 && !few) continue;
      Shape shape;
      shape.kind = kind;
      shape.algorithm = algorithm;
      shape.size = size;
      shape.count = bytes / 8;
      shape.element_bytes = 8;
      shape.piece_bytes = kLongest;
      const ScheduleTime time = time_of(shape, costs);
      ASSERT_TRUE(time.ends) << name_of(kind, algorithm, size, bytes);
      const double expected = cost_of(kind, algorithm, size, bytes, kLongest, costs);
      EXPECT_NEAR(time.nanoseconds / expected, 1, tolerance(kind, algorithm, bytes))
          << name_of(kind, algorithm, size, bytes);
    }
}

TEST(ScheduleTime, IsWhatTheCostModelSaysWithAFewRanksToHundreds) {
  for (const int size : {16, 64, 256})
    for (const std::uint64_t bytes : {64U, 16U << 10, 1U << 20})
      if (size < 256 || bytes < (1U << 20))
        for (const Costs& costs : {kSameHost, kNetwork}) compare(size, bytes, costs);
}

TEST(ScheduleTime, IsWhatTheCostModelSaysWithAThousandRanks) {
  compare(kSanitized ? 256 : 1024, 64, kNetwork);
}

}  // namespace
}  // namespace fairway::collectives
