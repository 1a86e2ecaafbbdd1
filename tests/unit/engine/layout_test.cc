#include "engine/layout.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace fairway::engine {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr RegionId kHere{1, 1};
constexpr RemoteRegionId kThere{2, 1};

TEST(Layout, TheFirstBlockThatLeavesItsRegionIsFound) {
  std::vector<std::uint64_t> near_index{0, 3, 1, 2}, far_index{5, 1, 2, 0};
  const Paged pages{kHere, kThere, 100, 100, 50, near_index, far_index};
  EXPECT_EQ(first_outside(pages, 0, 4, 400, 350), 4u);  // each fits, to the last byte
  EXPECT_EQ(first_outside(pages, 0, 4, 399, 350), 1u);
  EXPECT_EQ(first_outside(pages, 0, 4, 400, 349), 0u);
  EXPECT_EQ(first_outside(pages, 1, 3, 400, 349), 4u);
  EXPECT_EQ(first_outside(pages, 2, 2, 99, 1000), 2u);  // no page fits at all
  near_index[2] = kMost;                                // times the unit it would wrap around
  EXPECT_EQ(first_outside(pages, 0, 4, kMost, kMost), 2u);
  const Paged one_place{kHere, kThere, 100, 0, 0, near_index, far_index};
  EXPECT_EQ(first_outside(one_place, 0, 4, 100, 100), 4u);
  const Strided strided{{{kHere, 10, 100}, {kThere, 0}}, 150, 130, 3};
  EXPECT_EQ(first_outside(strided, 0, 3, 410, 360), 3u);
  EXPECT_EQ(first_outside(strided, 0, 3, 409, 360), 2u);
}

TEST(Layout, FourFormsOfTheSameBlocksReadAlike) {
  constexpr std::uint64_t kBlock = 100, kNearStride = 150, kFarStride = 130;
  std::vector<Extent> list;
  std::vector<std::uint64_t> near_index, far_index;
  for (std::uint64_t i = 0; i < 7; ++i) {
    list.push_back({{kHere, i * kNearStride, kBlock}, {kThere, i * kFarStride}});
    near_index.push_back(i * kNearStride / 10);
    far_index.push_back(i * kFarStride / 10);
  }
  const Layout layouts[] = {std::span<const Extent>(list), Strided{list[0], kNearStride, kFarStride, 7},
                            Paged{kHere, kThere, kBlock, 10, 10, near_index, far_index}};
  for (const Layout& layout : layouts) {
    EXPECT_TRUE(check_layout(layout));
    ASSERT_EQ(block_count(layout), 7u);
    EXPECT_EQ(total_bytes(layout), 700u);
    for (std::uint64_t i = 0; i < 7; ++i) {
      const Block block = block_at(layout, i);
      EXPECT_EQ(block.local, kHere);
      EXPECT_EQ(block.remote, kThere);
      EXPECT_EQ(block.local_offset, i * kNearStride);
      EXPECT_EQ(block.remote_offset, i * kFarStride);
      EXPECT_EQ(block.length, kBlock);
    }
  }
}

TEST(Layout, OneExtentIsOneBlockAndAnEmptyListIsNone) {
  const Layout one = Extent{{kHere, 3, 9}, {kThere, 4}};
  EXPECT_EQ(block_count(one), 1u);
  EXPECT_EQ(total_bytes(one), 9u);
  const Layout none = std::span<const Extent>();
  EXPECT_EQ(block_count(none), 0u);
  EXPECT_EQ(total_bytes(none), 0u);
  EXPECT_TRUE(check_layout(none));
}

TEST(Layout, OnlyRepeatedShapesAreRegular) {
  EXPECT_TRUE(is_regular(Strided{}));
  EXPECT_TRUE(is_regular(Paged{}));
  EXPECT_FALSE(is_regular(Extent{}));
  EXPECT_FALSE(is_regular(std::span<const Extent>()));
}

TEST(Layout, AStrideThatOverflowsIsRefused) {
  const Extent first{{kHere, 0, 8}, {kThere, 0}};
  EXPECT_EQ(check_layout(Strided{first, kMost / 2, 8, 4}).code(), ErrorCode::out_of_range);
  EXPECT_EQ(check_layout(Strided{first, 8, kMost / 2, 4}).code(), ErrorCode::out_of_range);
  EXPECT_EQ(check_layout(Strided{{{kHere, 0, kMost / 2}, {kThere, 0}}, 0, 0, 3}).code(), ErrorCode::out_of_range);
  EXPECT_EQ(check_layout(Strided{first, 8, 8, 0}).code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(check_layout(Strided{first, kMost, kMost, 1}));  // one block takes no stride
}

TEST(Layout, PagesNeedAnIndexOnEachSideAndFitIn64Bits) {
  const std::vector<std::uint64_t> three(3), two(2);
  EXPECT_EQ(check_layout(Paged{kHere, kThere, 8, 8, 8, three, two}).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(check_layout(Paged{kHere, kThere, kMost / 2, 8, 8, three, three}).code(), ErrorCode::out_of_range);
  EXPECT_TRUE(check_layout(Paged{kHere, kThere, 8, 8, 8, three, three}));
}

TEST(Layout, KnowsTheRegionsThatItTouches) {
  const RegionId other{9, 1};
  const RemoteRegionId far{9, 3};
  const std::vector<Extent> list{{{kHere, 0, 8}, {kThere, 0}}, {{other, 0, 8}, {far, 0}}};
  const Layout layout = std::span<const Extent>(list);
  EXPECT_TRUE(touches(layout, kHere) && touches(layout, other) && touches(layout, kThere) && touches(layout, far));
  EXPECT_FALSE(touches(layout, RegionId{9, 3}));
  EXPECT_TRUE(touches(Layout(Strided{list[1], 0, 0, kMost}), other));
  EXPECT_FALSE(touches(Layout(Strided{list[1], 0, 0, kMost}), kHere));
  EXPECT_FALSE(touches(Layout(Paged{}), kHere));
  EXPECT_FALSE(touches(Layout(std::span<const Extent>()), kHere));
}

TEST(Layout, TheSumOfAListStaysAtItsEnd) {
  const std::vector<Extent> list{{{kHere, 0, kMost}, {kThere, 0}}, {{kHere, 0, 9}, {kThere, 0}}};
  EXPECT_EQ(total_bytes(Layout(std::span<const Extent>(list))), kMost);
}

}  // namespace
}  // namespace fairway::engine
