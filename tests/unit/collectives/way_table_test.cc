#include "collectives/nccl/way_table.h"

#include <gtest/gtest.h>

namespace fairway::collectives {
namespace {

constexpr const char* kKey = "Fairway 1; two GPUs";

WayTable table_of(std::initializer_list<WayRow> rows) {
  WayTable table;
  for (const WayRow& row : rows) table.add(row);
  return table;
}

bool takes(const WayTable& table, std::uint64_t bytes, GpuWay way = GpuWay::guarded) {
  return table.takes(way, CollectiveKind::all_reduce, false, bytes);
}

TEST(WayTable, IsReadAsItWasWritten) {
  const WayTable table = table_of({{CollectiveKind::all_reduce, true, 8, {1, 2, 3}},
                                   {CollectiveKind::all_to_all, false, std::uint64_t{1} << 40, {100, 200'000, 3}}});
  const auto read = WayTable::parse(table.text(kKey), kKey);
  ASSERT_TRUE(read) << read.status().to_string();
  EXPECT_EQ(read->rows(), table.rows());
  EXPECT_TRUE(WayTable::parse(WayTable().text(kKey), kKey)->rows().empty());
}

// Cut anywhere, or with any byte changed, it is refused.
TEST(WayTable, DamageIsFound) {
  const std::string good = table_of({{CollectiveKind::broadcast, false, 512, {7, 8, 9}}}).text(kKey);
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(WayTable::parse(good.substr(0, i), kKey)) << i;
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(WayTable::parse(bad, kKey)) << i;
  }
  EXPECT_FALSE(WayTable::parse(good + "x", kKey));
  const auto other = WayTable::parse(good, "Fairway 2; two GPUs");
  EXPECT_NE(other.status().message().find("Fairway 1; two GPUs"), std::string::npos) << other.status().to_string();
}

TEST(WayTable, LinesThatAreNoneAreRefusedEvenIfTheEndIsRight) {
  for (const WayRow& row :
       {WayRow{CollectiveKind::barrier, false, 8, {1, 2, 3}}, WayRow{CollectiveKind::all_reduce, false, 8, {0, 2, 3}},
        WayRow{CollectiveKind::all_reduce, false, 8, {1, 2, 200'000'000'000}}})
    EXPECT_FALSE(WayTable::parse(table_of({row}).text(kKey), kKey));
  WayTable many;
  for (std::size_t i = 0; i <= WayTable::kMostRows; ++i) many.add({CollectiveKind::all_reduce, false, i, {1, 1, 1}});
  EXPECT_FALSE(WayTable::parse(many.text(kKey), kKey));
}

TEST(WayTable, BothRowsAroundACallDecide) {
  const CollectiveKind kind = CollectiveKind::all_reduce;
  const WayTable table = table_of({{kind, false, 4096, {100, 50, 10}},
                                   {kind, false, 512, {100, 200, 10}},
                                   {kind, false, 8192, {100, 50, 10}},
                                   {kind, true, 1024, {100, 1, 1}},
                                   {CollectiveKind::broadcast, false, 1024, {100, 1, 1}}});
  EXPECT_FALSE(takes(table, 8));
  EXPECT_FALSE(takes(table, 512));
  EXPECT_FALSE(takes(table, 2048));  // one says no
  EXPECT_TRUE(takes(table, 4096));
  EXPECT_TRUE(takes(table, 5000));
  EXPECT_TRUE(takes(table, std::uint64_t{1} << 40));
  EXPECT_TRUE(takes(table, 8, GpuWay::bare));
  EXPECT_FALSE(table.takes(GpuWay::bare, CollectiveKind::all_gather, false, 8));
  EXPECT_TRUE(table.takes(GpuWay::guarded, kind, true, 8));
}

TEST(WayTable, NoiseIsNoGain) {
  EXPECT_FALSE((WayRow{CollectiveKind::all_reduce, false, 8, {1000, 980, 1000}}.is_faster(GpuWay::guarded)));
  EXPECT_TRUE((WayRow{CollectiveKind::all_reduce, false, 8, {1000, 960, 1000}}.is_faster(GpuWay::guarded)));
  EXPECT_FALSE(table_of({{CollectiveKind::all_reduce, false, 8, {1000, 980, 960}}}).takes_any(GpuWay::guarded));
  EXPECT_TRUE(table_of({{CollectiveKind::all_reduce, false, 8, {1000, 980, 960}}}).takes_any(GpuWay::bare));
}

TEST(WayTable, CountsBytesOfAllBlocks) {
  Collective call{.kind = CollectiveKind::all_reduce, .count = 10, .type = DataType::f32};
  EXPECT_EQ(bytes_of_all(call, 4), 40U);
  call.kind = CollectiveKind::broadcast;
  EXPECT_EQ(bytes_of_all(call, 4), 40U);
  for (const CollectiveKind kind :
       {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all}) {
    call.kind = kind;
    EXPECT_EQ(bytes_of_all(call, 4), 160U);
  }
}

}  // namespace
}  // namespace fairway::collectives
