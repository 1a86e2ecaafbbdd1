#include "predict/max_min.h"

#include <cmath>

#include <gtest/gtest.h>

#include "predict/odds.h"

namespace fairway::predict {
namespace {

TEST(MaxMin, EqualFlowsShareEqually) {
  const std::vector<double> capacities{30};
  const std::vector<Demand> demands(3, Demand{{{0, 1}}});
  for (const auto& share : max_min(capacities, demands)) {
    EXPECT_DOUBLE_EQ(share.rate, 10);
    EXPECT_EQ(share.limited_by, 0U);
  }
}

TEST(MaxMin, WhatOneLeavesTheOthersTake) {
  const std::vector<double> capacities{30, 100};
  const std::vector<Demand> demands{{{{0, 1}}, 4}, {{{0, 1}, {1, 1}}}, {{{1, 1}}}};
  const auto shares = max_min(capacities, demands);
  EXPECT_DOUBLE_EQ(shares[0].rate, 4);
  EXPECT_EQ(shares[0].limited_by, Share::kCeiling);
  EXPECT_DOUBLE_EQ(shares[1].rate, 26);
  EXPECT_DOUBLE_EQ(shares[2].rate, 74);
}

TEST(MaxMin, ALowerEfficiencySpendsMoreOfTheLink) {
  const std::vector<double> capacities{63};
  const std::vector<Demand> demands{{{{0, 1 / 0.9}}}, {{{0, 1 / 0.7}}}};
  const auto shares = max_min(capacities, demands);
  EXPECT_DOUBLE_EQ(shares[0].rate, shares[1].rate);
  EXPECT_NEAR(shares[0].rate, 63 / (1 / 0.9 + 1 / 0.7), 1e-9);
}

TEST(MaxMin, AResourceCrossedTwiceGivesHalf) {
  const std::vector<double> capacities{10};
  const std::vector<Demand> demands{{{{0, 1}, {0, 1}}}};
  EXPECT_DOUBLE_EQ(max_min(capacities, demands)[0].rate, 5);
}

TEST(MaxMin, NothingBindsAnUnboundedFlow) {
  const std::vector<double> capacities{std::numeric_limits<double>::infinity()};
  const std::vector<Demand> demands{{{{0, 1}}}, {{{7, 1}}}};  // 7 is no resource
  for (const auto& share : max_min(capacities, demands)) EXPECT_TRUE(std::isinf(share.rate));
  EXPECT_TRUE(max_min(capacities, {}).empty());
}

// Rounding leaves a rest of a full resource's slope when its flows have stopped: nobody may wait for it to fill again.
TEST(MaxMin, WhatRoundingLeavesOfALoadEndsTheFilling) {
  Random random(3);
  const std::vector<double> capacities{1000, 1e9};
  std::vector<Demand> demands;
  for (int flow = 0; flow < 50'000; ++flow)
    demands.push_back({{{0, 1 / (0.1 + static_cast<double>(random.below(1000)) / 7)}}});
  demands.push_back({{{1, 1}}});
  const auto shares = max_min(capacities, demands);
  EXPECT_DOUBLE_EQ(shares.back().rate, 1e9);
  EXPECT_EQ(shares.front().limited_by, 0U);
}

// The two properties that define max-min: nothing is overfull, and whoever wants more is held by something full on
// which nobody else has more.
TEST(MaxMin, RandomNetworksAreFilledFairly) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> capacities(1 + random.below(12));
    for (auto& c : capacities) c = 1 + random.below(100);
    std::vector<Demand> demands(1 + random.below(30));
    for (auto& demand : demands) {
      for (std::uint32_t r = 0; r < capacities.size(); ++r) {
        if (random.below(3) == 0) demand.uses.push_back({r, 0.5 + random.below(4)});
      }
      demand.ceiling = random.below(2) == 0 ? 1 + random.below(50) : 1e9;
    }
    const auto shares = max_min(capacities, demands);
    std::vector<double> spent(capacities.size(), 0);
    for (std::size_t f = 0; f < demands.size(); ++f) {
      for (const auto& use : demands[f].uses) spent[use.resource] += use.weight * shares[f].rate;
    }
    for (std::size_t r = 0; r < capacities.size(); ++r) EXPECT_LE(spent[r], capacities[r] * (1 + 1e-9));
    for (std::size_t f = 0; f < demands.size(); ++f) {
      if (shares[f].limited_by == Share::kCeiling) {
        EXPECT_DOUBLE_EQ(shares[f].rate, demands[f].ceiling);
        continue;
      }
      const auto r = shares[f].limited_by;
      EXPECT_NEAR(spent[r], capacities[r], 1e-6);
      for (std::size_t g = 0; g < demands.size(); ++g) {
        for (const auto& use : demands[g].uses) {
          if (use.resource != r) continue;
          EXPECT_LE(shares[g].rate, shares[f].rate * (1 + 1e-9));
        }
      }
    }
  }
}

}  // namespace
}  // namespace fairway::predict
