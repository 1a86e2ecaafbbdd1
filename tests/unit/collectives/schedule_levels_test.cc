#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/host/choose.h"
#include "collectives/host/schedule.h"
#include "support/sanitized.h"
#include "unit/collectives/schedule_model.h"

// all_reduce in two levels: hosts of any numbers of ranks, numbered in any way.
namespace fairway::collectives {
namespace {

using Order = ScheduleModel::Order;

// Hosts of so many ranks each, whose ranks are numbered in turns while they have some.
std::vector<int> groups_with(std::vector<int> ranks) {
  std::vector<int> groups;
  for (bool more = true; more;) {
    more = false;
    for (std::size_t group = 0; group < ranks.size(); ++group)
      if (ranks[group]-- > 0) groups.push_back(static_cast<int>(group)), more = true;
  }
  return groups;
}

Shape shape_with(const std::vector<int>& groups, std::uint64_t count, std::uint64_t piece) {
  Shape shape;
  shape.kind = CollectiveKind::all_reduce;
  shape.algorithm = Algorithm::hierarchical;
  shape.size = static_cast<int>(groups.size());
  shape.count = count;
  shape.element_bytes = 8;
  shape.piece_bytes = piece * 8;
  shape.groups = groups;
  return shape;
}

std::uint64_t pieces_of(std::uint64_t count, std::uint64_t piece) {
  return count == 0 ? 1 : (count + piece - 1) / piece;
}

// By the table in docs/collective-algorithms.md.
std::uint64_t messages_in_levels(const std::vector<int>& ranks, std::uint64_t count, std::uint64_t piece,
                                 std::uint64_t near) {
  const auto n = [&] {
    std::uint64_t all = 0;
    for (const int one : ranks) all += static_cast<std::uint64_t>(one);
    return all;
  }();
  const auto h = static_cast<std::uint64_t>(ranks.size());
  const int least = *std::min_element(ranks.begin(), ranks.end());
  const auto parts = static_cast<std::uint64_t>(parts_in_levels(least, 8 * count));
  std::uint64_t sent = 0;
  for (std::uint64_t k = 0; k < parts; ++k) {
    const std::uint64_t part = count / parts + (k < count % parts ? 1 : 0);
    sent += 2 * (n - h) * pieces_of(part, near);
    const std::uint64_t power = std::bit_floor(h);
    if (algorithm_between_groups(static_cast<int>(h), 8 * part, 8 * piece) == Algorithm::recursive_doubling)
      sent +=
          (power * static_cast<std::uint64_t>(std::bit_width(power) - 1) + 2 * (h - power)) * pieces_of(part, piece);
    else
      for (std::uint64_t i = 0; i < h; ++i) sent += 2 * (h - 1) * pieces_of(part / h + (i < part % h ? 1 : 0), piece);
  }
  return sent;
}

void try_it(const std::vector<int>& ranks, std::uint64_t count, std::uint64_t piece, std::uint64_t near) {
  const std::vector<int> groups = groups_with(ranks);
  for (int form = 0; form < 4; ++form) {
    const bool in_place = form % 2 == 1;
    Shape shape = shape_with(groups, count, piece);
    shape.near_piece_bytes = near * 8;
    shape.in_place = in_place;
    shape.premul = form >= 2;
    shape.average = !shape.premul && count % 2 == 1;
    ScheduleModel model(shape);
    for (const Order order : {Order::round_robin, Order::first_that_can, Order::last_that_can, Order::random}) {
      if (groups.size() > 9 && order != Order::random) continue;
      std::string hosts;
      for (const int one : ranks) hosts += " " + std::to_string(one);
      ASSERT_EQ(model.run(order, count, kLeastRoom), "")
          << "hosts of" << hosts << " ranks, " << count << " elements, pieces of " << piece << " and " << near
          << (in_place ? ", in place" : "") << (shape.premul ? ", multiplied" : "");
      ASSERT_EQ(model.messages(), messages_in_levels(ranks, count, piece, near))
          << "hosts of" << hosts << ", " << count;
    }
  }
}

TEST(ScheduleLevels, CombineEveryElementOnHostsOfAnySizes) {
  for (const std::vector<int>& ranks : {std::vector<int>{2, 2},
                                        {3, 2},
                                        {1, 4},
                                        {4, 4},
                                        {2, 3, 1},
                                        {2, 2, 2},
                                        {3, 3, 3, 3},
                                        {1, 2, 3, 4, 5},
                                        {2, 2, 2, 2, 2, 2},
                                        {7, 7},
                                        {1, 1, 9},
                                        {8, 8, 8, 8}})
    for (const std::uint64_t count : {0, 1, 7, 511, 2050, 5001})
      for (const std::uint64_t piece : {200, 1000}) try_it(ranks, count, piece, piece == 200 ? 200 : 300);
}

TEST(ScheduleLevels, HoldUpToSixtyFourRanks) {
  for (int size = 2; size <= 64; size += kSanitized ? 9 : 5)
    for (const int host : {1, 3, 8}) {
      std::vector<int> ranks(static_cast<std::size_t>(size / host), host);
      if (size % host != 0) ranks.push_back(size % host);
      try_it(ranks, size % 2 == 0 ? 100 : 3000, 400, 200);
    }
}

// Without groups all ranks are of one host.
TEST(ScheduleLevels, AreDirectOnOneHost) {
  try_it({6}, 3000, 100, 100);
  const std::vector<int> groups(6, 0);
  Shape shape = shape_with(groups, 3000, 100), flat = shape;
  flat.groups = {};
  for (shape.rank = flat.rank = 0; shape.rank < 6; flat.rank = ++shape.rank) {
    Schedule in_levels, without;
    make_schedule(shape, in_levels);
    make_schedule(flat, without);
    ASSERT_EQ(in_levels.steps.size(), without.steps.size());
  }
}

// What the levels are for: every byte of the sum crosses to another host once, not once for each rank.
TEST(ScheduleLevels, SendTheVectorToAnotherHostOnce) {
  const std::vector<int> groups = groups_with({4, 4});
  std::uint64_t crossed[2] = {};
  for (const Algorithm algorithm : {Algorithm::hierarchical, Algorithm::direct}) {
    Shape shape = shape_with(groups, 80'000, 1000);
    shape.algorithm = algorithm;
    for (shape.rank = 0; shape.rank < shape.size; ++shape.rank) {
      Schedule schedule;
      make_schedule(shape, schedule);
      for (const Step& step : schedule.steps)
        if (step.kind == Step::Kind::send &&
            groups[static_cast<std::size_t>(step.peer)] != groups[static_cast<std::size_t>(shape.rank)])
          crossed[algorithm == Algorithm::direct ? 1 : 0] += step.bytes;
    }
  }
  EXPECT_EQ(crossed[0], 2 * 640'000U);  // each host's sum
  EXPECT_EQ(crossed[1], 4 * crossed[0]);
}

TEST(ScheduleLevels, FollowHostsAndOnOneHostNodes) {
  std::vector<Words> words(6);
  EXPECT_TRUE(groups_of(words).empty()) << "one host, of no known nodes";
  for (std::size_t i = 0; i < words.size(); ++i) words[i].node = static_cast<std::int16_t>(i / 3);
  EXPECT_EQ(groups_of(words), (std::vector<int>{0, 0, 0, 1, 1, 1})) << "two nodes of one host";
  words[5].node = -1;
  EXPECT_TRUE(groups_of(words).empty()) << "one of them may run anywhere";
  for (std::size_t i = 0; i < words.size(); ++i) words[i].host = 7 + i % 2;
  EXPECT_EQ(groups_of(words), (std::vector<int>{0, 1, 0, 1, 0, 1}));
  for (std::size_t i = 0; i < words.size(); ++i) words[i].host = i;
  EXPECT_TRUE(groups_of(words).empty()) << "a host for each";
}

TEST(ScheduleLevels, AreTakenBetweenHostsOfSeveralRanksAlone) {
  constexpr std::uint64_t kBetween = 256 << 10;
  Near near{2, 2, 2, 64 << 10, kMapped};
  for (const std::uint64_t bytes : {8U, 4U << 10, 1U << 20, 64U << 20}) {
    EXPECT_EQ(choose(CollectiveKind::all_reduce, 4, bytes, kBetween, kNetwork, false, near), Algorithm::hierarchical);
    EXPECT_NE(choose(CollectiveKind::all_reduce, 4, bytes, kBetween, kNetwork, true, near), Algorithm::hierarchical)
        << "in the order of ranks";
    EXPECT_NE(choose(CollectiveKind::all_reduce, 4, bytes, kBetween, kNetwork), Algorithm::hierarchical);
    EXPECT_NE(choose(CollectiveKind::broadcast, 4, bytes, kBetween, kNetwork, false, near), Algorithm::hierarchical);
  }
  EXPECT_TRUE(has_algorithm(CollectiveKind::all_reduce, Algorithm::hierarchical, false));
  EXPECT_FALSE(has_algorithm(CollectiveKind::all_reduce, Algorithm::hierarchical, true));
  EXPECT_FALSE(has_algorithm(CollectiveKind::all_gather, Algorithm::hierarchical, false));
}

}  // namespace
}  // namespace fairway::collectives
