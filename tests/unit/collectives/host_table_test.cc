#include <gtest/gtest.h>

#include "collectives/host/ways.h"

namespace fairway::collectives {
namespace {

constexpr const char* kKey = "Fairway 1; host a; 4 ranks";
constexpr CollectiveKind kSum = CollectiveKind::all_reduce;

HostTable table_of(std::initializer_list<HostRow> rows, int over = 5) {
  HostTable table(over);
  for (const HostRow& row : rows) table.add(row);
  return table;
}

TEST(HostTable, IsReadAsItWasWritten) {
  const HostTable table = table_of({{kSum, 8, {{Algorithm::one_shot, 5}, {Algorithm::ring, 10'000'000'000}}},
                                    {kSum, 1 << 20, {{Algorithm::hierarchical, 7}}},
                                    {CollectiveKind::broadcast, 32, {{Algorithm::chain, 3}}}});
  const auto read = HostTable::parse(table.text(kKey), kKey);
  ASSERT_TRUE(read) << read.status().to_string();
  EXPECT_EQ(read->rows(), table.rows());
  EXPECT_EQ(read->over(), 5);
}

// Cut anywhere, with any byte changed, or of another machine it is refused.
TEST(HostTable, DamageIsFound) {
  const std::string good = table_of({{kSum, 8, {{Algorithm::one_shot, 5}}}}).text(kKey);
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(HostTable::parse(good.substr(0, i), kKey)) << i;
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(HostTable::parse(bad, kKey)) << i;
  }
  const auto other = HostTable::parse(good, "Fairway 2; host a; 4 ranks");
  EXPECT_NE(other.status().message().find("of another machine or version (Fairway 1; host a; 4 ranks)"),
            std::string::npos)
      << other.status().to_string();
}

TEST(HostTable, LinesThatAreNoneAreRefusedEvenIfTheEndIsRight) {
  for (const HostRow& row :
       {HostRow{kSum, 8, {}}, HostRow{kSum, 8, {{Algorithm::one_shot, 0}}},
        HostRow{kSum, 8, {{Algorithm::one_shot, 20'000'000'000}}}, HostRow{kSum, 8, {{Algorithm::binomial, 5}}},
        HostRow{kSum, std::uint64_t{1} << 40, {{Algorithm::one_shot, 5}}},
        HostRow{kSum, 8, {{Algorithm::one_shot, 5}, {Algorithm::one_shot, 6}}},
        HostRow{CollectiveKind::barrier, 8, {{Algorithm::dissemination, 5}}}})
    EXPECT_FALSE(HostTable::parse(table_of({row}).text(kKey), kKey));
  EXPECT_FALSE(HostTable::parse(table_of({}, 99).text(kKey), kKey));
  HostTable many;
  for (std::size_t i = 0; i <= HostTable::kMostRows; ++i) many.add({kSum, i, {{Algorithm::one_shot, 1}}});
  EXPECT_FALSE(HostTable::parse(many.text(kKey), kKey));
}

TEST(HostTable, TheFastestIsTakenAtEachMeasuredSize) {
  const HostTable table = table_of({{kSum, 8, {{Algorithm::one_shot, 5}, {Algorithm::direct, 9}, {Algorithm::ring, 6}}},
                                    {kSum, 2048, {{Algorithm::one_shot, 50}, {Algorithm::direct, 49}}},
                                    {kSum, 1 << 20, {{Algorithm::one_shot, 900}, {Algorithm::direct, 901}}}});
  const Fastest found = table.fastest();
  EXPECT_EQ(found.at(kSum, 0), Algorithm::one_shot);
  EXPECT_EQ(found.at(kSum, 8), Algorithm::one_shot);
  EXPECT_EQ(found.at(kSum, 2048), Algorithm::direct);
  EXPECT_EQ(found.at(kSum, 1 << 20), Algorithm::one_shot);
  EXPECT_EQ(found.at(kSum, std::uint64_t{1} << 40), Algorithm::one_shot);
  EXPECT_EQ(found.at(CollectiveKind::broadcast, 8), Algorithm::automatic);
  EXPECT_EQ(found.at(CollectiveKind::gather, 8), Algorithm::automatic);
}

// Between two sizes it is taken that a byte costs the same: here both take 600 at 50,000 bytes.
TEST(HostTable, BetweenTwoSizesTheLineThroughBothDecides) {
  const Fastest found = table_of({{kSum, 0, {{Algorithm::one_shot, 100}, {Algorithm::direct, 500}}},
                                  {kSum, 100'000, {{Algorithm::one_shot, 1100}, {Algorithm::direct, 700}}}})
                            .fastest();
  EXPECT_EQ(found.at(kSum, 46'000), Algorithm::one_shot);
  EXPECT_EQ(found.at(kSum, 66'000), Algorithm::direct);
}

TEST(Fastest, HasTwoSizesForEachDoubling) {
  EXPECT_EQ(Fastest::point_of(0), 0U);
  EXPECT_EQ(Fastest::point_of(10), 0U);
  EXPECT_EQ(Fastest::point_of(11), 1U);
  EXPECT_EQ(Fastest::point_of(16), 2U);
  EXPECT_EQ(Fastest::point_of(~std::uint64_t{0}), Fastest::kPoints - 1);
  for (std::size_t point = 0; point < Fastest::kPoints; ++point)
    EXPECT_EQ(Fastest::point_of(Fastest::bytes_at(point)), point);
}

}  // namespace
}  // namespace fairway::collectives
