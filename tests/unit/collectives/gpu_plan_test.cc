#include "collectives/gpu_plan.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "collectives/gpu_work.h"

namespace fairway::collectives::gpu {
namespace {

TEST(GpuLayout, NothingOverlapsAndAllIsBelow16MiB) {
  for (int size = 1; size <= static_cast<int>(kMostRanks); ++size) {
    const Layout layout = layout_of(size);
    const std::uint64_t others = std::max(size - 1, 1);
    EXPECT_LT(layout.bytes, 16U << 20) << size;
    EXPECT_GE(layout.unit_count, 2U);
    EXPECT_EQ(Layout::place_at(Layout::kPlaces), layout.own_at);
    for (std::uint32_t place = 0; place < Layout::kPlaces; ++place) {
      EXPECT_GE(Layout::own_bytes(place), kUnitChannels * kUnitPlaces * others * layout.unit_count * 16);
      EXPECT_EQ(layout.own_of(place + 1), layout.own_of(place) + Layout::own_bytes(place));
      EXPECT_EQ(layout.own_of(place) % 128, 0U) << "a line is one access";
    }
    EXPECT_EQ(layout.own_of(0), layout.own_at);
    const Area& area = layout.area;
    EXPECT_GE(area.head_at, layout.own_of(Layout::kPlaces));
    EXPECT_EQ(area.pieces_at % 128, 0U);
    EXPECT_GE(area.flags_at, area.head_at + sizeof(AreaHead));
    EXPECT_GE(area.pieces_at, area.flags_at + std::uint64_t{kPieceChannels} * layout.size * 8);
    EXPECT_GE(area.piece_bytes, 1024U);
    EXPECT_EQ(area.piece_bytes % 16, 0U);
    EXPECT_EQ(area.pieces_at % 16, 0U);
    EXPECT_LE(area.pieces_at + kPieceChannels * kPiecePlaces * others * area.piece_bytes, layout.phases_at);
    EXPECT_EQ(layout.phases_of(Layout::kPlaces), layout.bytes);
  }
}

TEST(GpuReadRoute, ManyBytesAreReadWhereTheyAre) {
  constexpr std::uint64_t kMany = 64U << 20;
  EXPECT_FALSE(read_route_of(2, Work::nothing, 0, 1));
  EXPECT_FALSE(read_route_of(1, Work::to_all, kMany));
  EXPECT_FALSE(read_route_of(2, Work::to_all, 0, 1));
  EXPECT_FALSE(read_route_of(2, Work::to_all, kMovedByReading - 1));
  EXPECT_TRUE(read_route_of(2, Work::to_all, kMovedByReading));
  EXPECT_TRUE(read_route_of(4, Work::to_each, kMovedByReading / 3 + 1)) << "the blocks of all others count";
  EXPECT_FALSE(read_route_of(2, Work::reduce_to_all, kMany));
  EXPECT_TRUE(read_route_of(3, Work::reduce_to_all, kMany)) << "lines are slower among more than two";
  EXPECT_FALSE(read_route_of(3, Work::from_root, kMany));
  EXPECT_TRUE(read_route_of(2, Work::reduce_to_each, kMany));
  EXPECT_TRUE(read_route_of(2, Work::reduce_to_all, 8, 1));
}

// Parts and chunks cover all bytes, once.
TEST(GpuReadRoute, PartsCoverAll) {
  for (const std::uint32_t size : {2U, 3U, 5U, 8U})
    for (const std::uint64_t bytes :
         {std::uint64_t{4}, std::uint64_t{1000}, std::uint64_t{128} << 20, (std::uint64_t{1} << 30) + 20})
      for (const Work work : {Work::reduce_to_all, Work::from_root}) {
        const auto route = read_route_of(size, work, bytes, 1);
        ASSERT_TRUE(route);
        EXPECT_TRUE(route->blocks >= 1 && route->blocks <= kReadChannels);
        const std::uint64_t parts = work == Work::reduce_to_all ? size : route->chunks;
        std::uint64_t at = 0;
        for (std::uint64_t part = 0; part < parts; ++part) {
          const Range range = nth_part(bytes, route->part_bytes, part);
          EXPECT_TRUE(range.begin == at || range.bytes == 0) << size << " " << bytes << " " << part;
          at += range.bytes;
        }
        EXPECT_EQ(at, bytes);
      }
}

TEST(GpuPlaces, EachStreamAndCaptureHasItsOwn) {
  Places places;
  EXPECT_EQ(places.place_of({7, 0}), 0);
  EXPECT_EQ(places.place_of({7, 1}), 1);
  EXPECT_EQ(places.place_of({8, 1}), 2);
  EXPECT_EQ(places.place_of({7, 0}), 0);
  for (std::uint32_t i = 3; i < Layout::kPlaces; ++i) EXPECT_EQ(places.place_of({100 + i, 0}), static_cast<int>(i));
  EXPECT_EQ(places.place_of({1, 1}), -1);
}

TEST(GpuRoute, FewBytesGoByUnitsManyByPieces) {
  for (const int size : {1, 2, 3, 8}) {
    const Layout layout = layout_of(size);
    const auto route = [&](Work work, std::uint64_t bytes, Algorithm asked = Algorithm::automatic) {
      return route_of(layout, 0, work, bytes, asked, false);
    };
    const std::uint64_t most = kMostByUnits / static_cast<std::uint64_t>(std::max(size - 1, 1));
    for (const Work work : {Work::reduce_to_all, Work::to_all, Work::to_each, Work::from_root, Work::reduce_to_each}) {
      for (const std::uint64_t bytes : {std::uint64_t{8}, most}) {
        const Route few = route(work, bytes);
        EXPECT_FALSE(few.wants_area);
        EXPECT_LE(few.blocks, kUnitChannels);
        EXPECT_EQ(few.lines.rounds, 0U);
      }
      const Route large = route(work, most + 1);
      EXPECT_EQ(large.way, work == Work::reduce_to_all && size > 2 ? Way::two_shot : Way::one_shot);
      EXPECT_TRUE(large.wants_area);
      EXPECT_EQ(large.area_lines.rounds, 0U);
      EXPECT_EQ(route(work, 1U << 30).blocks, kPieceChannels);
    }
    EXPECT_EQ(route(Work::reduce_to_all, 8, Algorithm::direct).way, Way::two_shot);
    EXPECT_EQ(route(Work::reduce_to_all, 1 << 20, Algorithm::one_shot).way, Way::one_shot);
  }
}

// Every byte has a row, and every row a place.
TEST(GpuRoute, LinesHaveRoomForAllBytes) {
  for (const int size : {1, 2, 3, 5, 8}) {
    const Layout layout = layout_of(size);
    const std::uint64_t others = static_cast<std::uint64_t>(std::max(size - 1, 1));
    for (const Work work : {Work::nothing, Work::reduce_to_all, Work::to_each, Work::from_root}) {
      for (std::uint64_t bytes = work == Work::nothing ? 0 : 1, place = 0; bytes <= 1ULL << 33;
           bytes = place == 0 ? bytes * 3 + 7 : bytes) {
        const std::uint64_t most = place == 0 ? kMostByWideLines : kMostByLines;
        const Route route =
            route_of(layout, static_cast<std::uint32_t>(place), work, bytes, Algorithm::automatic, true);
        const bool two_shot = route.way == Way::two_shot;
        const std::uint64_t moved = two_shot ? route.part_bytes : bytes;
        if (two_shot) {
          EXPECT_GE(moved * (work == Work::from_root ? others : layout.size), bytes);
          EXPECT_EQ(moved % 16, 0U);
        }
        const bool in_two = work == Work::reduce_to_all || work == Work::from_root;
        EXPECT_EQ(two_shot, in_two && size > 2 && bytes * others > (work == Work::from_root ? kBroadcastAtOnce : most));
        EXPECT_EQ(route.wants_area, moved * others > most);
        EXPECT_EQ(route.area_lines.rounds != 0, route.wants_area) << "where there are lines, none goes by pieces";
        for (const Lines& lines : {route.lines, route.area_lines}) {
          if (lines.rounds == 0) continue;
          const std::uint64_t rows = std::uint64_t{lines.blocks} * lines.warps * lines.rows;
          EXPECT_GE(rows * lines.rounds * kRowBytes, moved) << size << " ranks, " << bytes << " bytes";
          EXPECT_LE(rows * others * kRowMemory, lines.place_bytes);
          EXPECT_LE(lines.blocks, route.blocks);
          EXPECT_LE(lines.warps * kRowLanes, route.threads);
          EXPECT_LE(route.threads, kThreads);
          EXPECT_LE(route.blocks, kPieceChannels);
        }
        EXPECT_LE(2 * std::uint64_t{route.lines.place_bytes}, Layout::own_bytes(static_cast<std::uint32_t>(place)));
        EXPECT_LE(layout.area.pieces_at + 2 * std::uint64_t{route.area_lines.place_bytes}, layout.bytes);
        place = Layout::kPlaces - 1 - place;
        if (bytes == 0 && place == 0) break;
      }
    }
  }
}

}  // namespace
}  // namespace fairway::collectives::gpu
