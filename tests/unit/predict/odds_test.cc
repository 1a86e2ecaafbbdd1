#include "predict/odds.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace fairway::predict {
namespace {

double monte_carlo(std::uint32_t qps, std::uint32_t legs, std::uint32_t trials) {
  Random random(11);
  double sum = 0;
  for (std::uint32_t trial = 0; trial < trials; ++trial) {
    std::vector<std::uint32_t> load(legs, 0);
    for (std::uint32_t q = 0; q < qps; ++q) ++load[random.below(legs)];
    sum += static_cast<double>(qps) / (legs * static_cast<double>(*std::max_element(load.begin(), load.end())));
  }
  return sum / trials;
}

TEST(BondOdds, TwoLegsGiveTheKnownShares) {
  EXPECT_DOUBLE_EQ(hashed_share(1, 2), 0.5);
  EXPECT_NEAR(hashed_share(2, 2), 0.75, 1e-12);
  EXPECT_NEAR(hashed_share(4, 2), 0.770833333333, 1e-9);
  EXPECT_NEAR(hashed_share(8, 2), 0.81, 0.005);
  EXPECT_NEAR(hashed_share(16, 2), 0.85, 0.005);
}

TEST(BondOdds, TheExactSumAgreesWithMonteCarlo) {
  for (const auto& [qps, legs] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {2, 2}, {8, 2}, {16, 2}, {64, 2}, {3, 3}, {12, 4}, {16, 8}, {5, 7}}) {
    EXPECT_NEAR(hashed_share(qps, legs), monte_carlo(qps, legs, 60000), 0.004) << qps << " on " << legs;
  }
}

TEST(BondOdds, RoundRobinIsNeverWorseThanHashing) {
  for (std::uint32_t legs = 1; legs <= 8; ++legs) {
    for (std::uint32_t qps = 1; qps <= 40; ++qps) {
      EXPECT_GE(round_robin_share(qps, legs) + 1e-12, hashed_share(qps, legs)) << qps << " on " << legs;
    }
  }
  EXPECT_DOUBLE_EQ(round_robin_share(3, 2), 0.75);
}

TEST(BondOdds, TheDistributionOfTheHeaviestEndsAtOne) {
  EXPECT_DOUBLE_EQ(heaviest_at_most(8, 4, 8), 1);
  EXPECT_DOUBLE_EQ(heaviest_at_most(8, 4, 1), 0);
  EXPECT_NEAR(heaviest_at_most(4, 2, 2), 6.0 / 16, 1e-12);
  EXPECT_NEAR(hashed_share(1024, 2), 0.97, 0.01);  // the limits of the arguments hold
  EXPECT_DOUBLE_EQ(hashed_share(0, 0), 1);
}

TwoTier fabric() {
  TwoTier f;
  f.hosts = 64;
  f.hosts_per_leaf = 8;
  f.spines = 8;
  f.host_gbps = 400;
  f.uplink_gbps = 400;
  return f;
}

TEST(FabricOdds, MoreFlowsCollideLess) {
  auto one = fabric();
  auto many = fabric();
  many.flows_per_host = 16;
  const auto few = fabric_odds(one, 50, 3);
  const auto spread = fabric_odds(many, 50, 3);
  ASSERT_TRUE(few && spread);
  EXPECT_GT(spread->slowest_mean, few->slowest_mean);
  EXPECT_DOUBLE_EQ(few->balanced, 1);
  EXPECT_LE(few->worst, few->p5);
  EXPECT_LE(few->p5, few->p50);
  EXPECT_LE(few->p50, few->p95);
  EXPECT_LE(few->p95, 1 + 1e-9);
}

TEST(FabricOdds, TheSameSeedGivesTheSameAnswer) {
  const auto a = fabric_odds(fabric(), 20, 5);
  const auto b = fabric_odds(fabric(), 20, 5);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->mean, b->mean);
  EXPECT_EQ(a->worst, b->worst);
}

TEST(FabricOdds, ThinUplinksBoundEverybody) {
  auto thin = fabric();
  thin.spines = 2;
  const auto odds = fabric_odds(thin, 20, 1);
  ASSERT_TRUE(odds);
  EXPECT_DOUBLE_EQ(odds->balanced, 0.25);
  EXPECT_LE(odds->mean, 0.26);
}

TEST(FabricOdds, AFileThatIsWrongIsRefusedByName) {
  if (read_two_tier("{}", "f.json").status().code() == ErrorCode::unsupported)
    GTEST_SKIP() << "this build reads no JSON: nlohmann-json was not found";
  EXPECT_EQ(read_two_tier("{", "f.json").status().message(), "f.json: is no JSON object");
  EXPECT_NE(read_two_tier(R"({"hosts": -3})", "f.json").status().message().find("hosts is no whole number"),
            std::string::npos);
  EXPECT_NE(read_two_tier(R"({"hosts": 1e300})", "f.json").status().message().find("hosts"), std::string::npos);
  EXPECT_NE(read_two_tier(R"({"host": 3})", "f.json").status().message().find("is not a field"), std::string::npos);
  EXPECT_NE(read_two_tier(R"({"hosts": 8, "hosts_per_leaf": 8})", "f.json").status().message().find("hosts_per_leaf"),
            std::string::npos);
  const auto good = read_two_tier(
      R"({"hosts": 8, "hosts_per_leaf": 4, "spines": 2, "host_gbps": 400, "uplink_gbps": 800})", "f.json");
  ASSERT_TRUE(good) << good.status().message();
  EXPECT_EQ(good->flows_per_host, 1U);
}

}  // namespace
}  // namespace fairway::predict
