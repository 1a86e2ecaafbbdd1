#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/region_exchange.h"

namespace fairway::engine {
namespace {

constexpr RegionId kKvRegion{1, 1}, kWeightsRegion{2, 1};

std::vector<std::uint64_t> tokens_of(const Result<std::vector<PublishedRegions::Asker>>& askers) {
  EXPECT_TRUE(askers) << askers.status().to_string();
  std::vector<std::uint64_t> tokens;
  if (askers)
    for (const auto& asker : *askers) tokens.push_back(asker.token);
  return tokens;
}

TEST(PublishedRegions, WhoAskedTooEarlyIsToldOnce) {
  PublishedRegions regions;
  EXPECT_FALSE(regions.find("kv", {7, 1}));
  EXPECT_FALSE(regions.find("kv", {8, 2}));
  EXPECT_FALSE(regions.find("weights", {7, 3}));
  EXPECT_EQ(tokens_of(regions.publish("kv", kKvRegion)), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(tokens_of(regions.publish("kv", kKvRegion)), std::vector<std::uint64_t>());  // again, of the same region
  EXPECT_EQ(regions.find("kv", {7, 4}), kKvRegion);
  EXPECT_EQ(tokens_of(regions.publish("weights", kWeightsRegion)), std::vector<std::uint64_t>{3});
}

TEST(PublishedRegions, ANameIsOneRegions) {
  PublishedRegions regions;
  EXPECT_TRUE(regions.publish("kv", kKvRegion));
  EXPECT_EQ(regions.publish("kv", kWeightsRegion).status().code(), ErrorCode::already_exists);
  EXPECT_EQ(regions.publish("kv", {1, 2}).status().code(), ErrorCode::already_exists) << "the slot's next region";
  EXPECT_EQ(regions.find("kv", {7, 1}), kKvRegion);
}

TEST(PublishedRegions, ARevokedRegionsNamesAreFree) {
  PublishedRegions regions;
  EXPECT_TRUE(regions.publish("kv", kKvRegion));
  EXPECT_TRUE(regions.publish("also kv", kKvRegion));
  EXPECT_TRUE(regions.publish("weights", kWeightsRegion));
  regions.withdraw(kKvRegion);
  EXPECT_FALSE(regions.find("also kv", {7, 1}));
  EXPECT_EQ(regions.find("weights", {7, 2}), kWeightsRegion);
  EXPECT_TRUE(regions.publish("kv", kWeightsRegion));
}

TEST(PublishedRegions, WhoHasLeftWaitsForNothing) {
  PublishedRegions regions;
  EXPECT_FALSE(regions.find("kv", {7, 1}));
  EXPECT_FALSE(regions.find("kv", {8, 1}));
  regions.forget(7);
  const auto askers = regions.publish("kv", kKvRegion);
  ASSERT_EQ(tokens_of(askers).size(), 1u);
  EXPECT_EQ(askers->front().session, 8u);
}

TEST(PublishedRegions, AHostilePeerFillsNoMemory) {
  PublishedRegions regions;
  for (std::uint64_t token = 0; token < PublishedRegions::kMaxAskers + 10; ++token)
    EXPECT_FALSE(regions.find("kv", {7, token}));
  EXPECT_EQ(tokens_of(regions.publish("kv", kKvRegion)).size(), PublishedRegions::kMaxAskers);
}

TEST(PublishedRegions, NamesHaveALength) {
  EXPECT_TRUE(PublishedRegions::check_name("a"));
  EXPECT_TRUE(PublishedRegions::check_name(std::string(1024, 'a')));
  EXPECT_EQ(PublishedRegions::check_name("").code(), ErrorCode::invalid_argument);
  EXPECT_EQ(PublishedRegions::check_name(std::string(1025, 'a')).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace fairway::engine
