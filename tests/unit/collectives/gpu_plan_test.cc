#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/gpu/device/slots.h"
#include "collectives/gpu/device/work.h"
#include "collectives/gpu/plan.h"

namespace fairway::collectives::gpu {
namespace {

TEST(GpuLayout, NothingOverlapsAndAllIsBelow16MiB) {
  for (int size = 1; size <= static_cast<int>(kMostRanks); ++size) {
    const Layout layout = layout_of(size, true);
    const std::uint64_t others = std::max(size - 1, 1);
    EXPECT_LT(layout_of(size, false).bytes, 33U << 20) << size;
    EXPECT_LT(layout.bytes, 42U << 20) << "messages, " << size;
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
    EXPECT_EQ(layout.phases_of(Layout::kPlaces), layout.sizes_at);
    EXPECT_EQ(layout.sizes_of(Layout::kPlaces), layout.slots_at);
    for (std::uint32_t place = 0; place < Layout::kPlaces; ++place) {
      const Range slots = layout.slots_of(place, false);
      EXPECT_EQ(slots.begin % 128, 0U);
      EXPECT_GE(slots.bytes / 2 / kRowMemory, others) << "a row of each";
      const std::uint64_t units = kUnitChannels * kUnitPlaces * others * layout.unit_count * 16;
      if (Layout::is_wide(place)) {
        EXPECT_GE(slots.begin, layout.own_of(place) + units) << "units of other kernels turn by themselves";
        EXPECT_LE(slots.begin + slots.bytes, layout.own_of(place + 1));
      } else {
        EXPECT_GE(slots.begin, layout.slots_at);
        EXPECT_LE(slots.begin + slots.bytes, layout.heads_at);
      }
    }
  }
}

// Each pair of ranks has its own, in each direction, and so has each of its streams.
TEST(GpuLayout, MessagesOverlapNowhere) {
  for (std::uint32_t size = 2; size <= kMostRanks; ++size) {
    const Layout layout = layout_of(static_cast<int>(size), true);
    std::vector<Range> all;
    std::vector<std::uint32_t> ids, tolds;
    constexpr std::uint32_t kOwn = 1;
    for (std::uint32_t other = 0; other < size; ++other)
      for (std::uint32_t place = 0; other != kOwn && place < Layout::kMessagePlaces; ++place) {
        all.push_back(layout.message_of(other, kOwn, place));
        EXPECT_GE(all.back().bytes, 4 * kRowMemory);
        EXPECT_EQ(all.back().begin % 128, 0U);
        const std::uint64_t words = std::uint64_t{kMessageBlocks} * kMostWarps * 8;
        all.push_back({layout.heard_of(kOwn, other, place), words});
        for (const auto& [from, to] : {std::pair(kOwn, other), std::pair(other, kOwn)}) {
          ids.push_back(Layout::message_id(from, to, place));
          tolds.push_back(Layout::told_of(kOwn, from, to, place));
          all.push_back({layout.head_of(ids.back()), kPlaceHead});
          const auto ends = message_ends(Layout::kPlaces + ids.back());
          EXPECT_TRUE(ends && ends->from == static_cast<int>(from) && ends->to == static_cast<int>(to));
        }
      }
    std::ranges::sort(all, {}, &Range::begin);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_GE(all[i].begin, layout.heads_at);
      EXPECT_LE(all[i].begin + all[i].bytes, i + 1 < all.size() ? all[i + 1].begin : layout.bytes);
    }
    for (auto* const numbers : {&ids, &tolds}) {
      std::ranges::sort(*numbers);
      EXPECT_EQ(std::ranges::adjacent_find(*numbers), numbers->end());
    }
    EXPECT_LT(ids.back(), Layout::kMessageHeads);
    EXPECT_LT(tolds.back(), Layout::kTolds);
    EXPECT_GE(tolds.front(), Layout::kPlaces);
  }
  EXPECT_FALSE(message_ends(Layout::kPlaces - 1));
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
  EXPECT_EQ(places.place_of({7, 0}).place, 0);
  EXPECT_EQ(places.place_of({7, 1}).place, 1);
  EXPECT_EQ(places.place_of({8, 1}).place, 2);
  EXPECT_EQ(places.place_of({7, 0}).place, 0);
  for (std::uint32_t i = 3; i < Layout::kPlaces; ++i)
    EXPECT_EQ(places.place_of({100 + i, 0}).place, static_cast<int>(i));
  EXPECT_EQ(places.place_of({1, 1}).place, -1);
  EXPECT_EQ(places.place_of({1, 0}).place, -1);  // nobody's end is known
}

// The one that was used longest ago of those whose end is known; never a capture's, and none for a capture.
TEST(GpuPlaces, AStreamTakesOverThePlaceOfOneThatCanBeWaitedFor) {
  Places places(12);
  const auto use = [&](Source source) {
    const Places::Found found = places.place_of(source);
    if (const auto place = places.find(source); place && source.capture == 0 && places.need_ends())
      places.has_end(*place);
    return found;
  };
  for (std::uint32_t i = 0; i < 11; ++i) EXPECT_EQ(use({100 + i, 0}).place, static_cast<int>(i));
  EXPECT_EQ(use({7, 1}).place, 11);
  (void)use({108, 0});
  for (const int oldest : {9, 10, 8}) {  // the first eight: nobody recorded their ends
    const auto found = use({std::uint64_t{200} + static_cast<unsigned>(oldest), 0});
    EXPECT_EQ(found.place, oldest);
    EXPECT_TRUE(found.after);
  }
  EXPECT_FALSE(use({209, 0}).after);
  (void)use({100, 0});  // now its end is known, and it is the newest
  EXPECT_EQ(use({300, 0}).place, 10);
  EXPECT_EQ(use({8, 1}).place, -1);
  const Places::Found pending = places.place_of({210, 0});
  EXPECT_TRUE(pending.after);
  for (int i = 0; i < 20; ++i) EXPECT_NE(use({400 + static_cast<unsigned>(i), 0}).place, pending.place) << i;
}

TEST(GpuPlaces, WhatIsGivenBackIsTakenAgainFromTheFirstOn) {
  Places places(3, 0);
  for (std::uint64_t capture = 1; capture <= 3; ++capture) (void)places.place_of({7, capture});
  EXPECT_TRUE(places.are_taken());
  EXPECT_TRUE(places.lacks({7, 4}));
  EXPECT_TRUE(places.lacks({8, 0}));
  EXPECT_FALSE(places.lacks({7, 2}));
  const auto over = places.over([](std::uint64_t capture) { return capture != 2; });
  EXPECT_EQ(over, (Places::Set{0b101}));
  places.give_back(over);
  EXPECT_FALSE(places.lacks({7, 4}));
  EXPECT_FALSE(places.find({7, 1}));
  const Places::Found first = places.place_of({7, 4}), second = places.place_of({8, 0});
  EXPECT_EQ(first.place, 0);
  EXPECT_FALSE(first.after);
  EXPECT_EQ(first.nth, 4u);
  EXPECT_EQ(second.place, 2);
  EXPECT_EQ(places.place_of({7, 2}).place, 1);
  EXPECT_TRUE(places.lacks({7, 5}));
}

// Every owner has a number of its own, which two ranks compare.
TEST(GpuPlaces, WhoGetsAPlaceIsNumberedAndWhoComesAgainCountsAgain) {
  Places places(3, 0);
  const auto use = [&](std::uint64_t stream) {
    const Places::Found found = places.place_of({stream, 0});
    places.has_end(*places.find({stream, 0}));
    return std::pair(found.place, found.nth);
  };
  EXPECT_EQ(places.most(), 3u);
  EXPECT_FALSE(places.need_ends());
  EXPECT_EQ(use(7), std::pair(0, std::uint64_t{1}));
  EXPECT_TRUE(places.need_ends());
  EXPECT_EQ(use(8), std::pair(1, std::uint64_t{2}));
  EXPECT_EQ(use(9), std::pair(2, std::uint64_t{3}));
  EXPECT_EQ(use(7), std::pair(0, std::uint64_t{1}));
  EXPECT_EQ(use(10), std::pair(1, std::uint64_t{4}));
  EXPECT_EQ(use(8), std::pair(2, std::uint64_t{5}));
}

TEST(GpuRoute, FewBytesGoByUnitsManyByPieces) {
  for (const int size : {1, 2, 3, 8}) {
    const Layout layout = layout_of(size, true);
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
    const Layout layout = layout_of(size, true);
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

// Every byte has a row, and every row a place, in both forms.
TEST(GpuFurtherRoute, RowsHaveRoomForAllBytes) {
  for (const int size : {1, 2, 3, 5, 8})
    for (const bool by_lines : {true, false})
      for (const std::uint32_t place : {0U, Layout::kPlaces - 1})
        for (const Work work : {Work::reduce_to_root, Work::reduce_to_all, Work::reduce_to_each, Work::blocks})
          for (std::uint64_t bytes = 1; bytes <= 1ULL << 33; bytes = bytes * 3 + 7) {
            const Layout layout = layout_of(size, true);
            const auto others = static_cast<std::uint64_t>(std::max(size - 1, 1));
            const Route route = further_route_of(layout, place, work, bytes, false, Algorithm::automatic, by_lines);
            const bool two_shot = route.way == Way::two_shot;
            const std::uint64_t most = place == 0 ? kMostByWideLines : kMostByLines;
            EXPECT_EQ(two_shot, (work == Work::reduce_to_root || work == Work::reduce_to_all) && size > 2 &&
                                    bytes * others > most);
            const std::uint64_t moved = two_shot ? route.part_bytes : bytes;
            if (two_shot) EXPECT_GE(moved * layout.size, bytes);
            EXPECT_EQ(route.wants_area, by_lines && moved * others > most);
            const Range memory = layout.slots_of(place, by_lines);
            for (const Lines& lines : {route.lines, route.area_lines}) {
              if (lines.rounds == 0) continue;
              const std::uint64_t rows = std::uint64_t{lines.blocks} * lines.warps * lines.rows;
              EXPECT_GE(rows * lines.rounds * (by_lines ? LineForm::kBytes : UnitForm::kBytes), moved);
              EXPECT_LE(rows * others * kRowMemory, lines.place_bytes);
              EXPECT_LE(lines.blocks, route.blocks);
              EXPECT_LE(lines.warps * kRowLanes, route.threads);
            }
            EXPECT_EQ(route.lines.at, memory.begin);
            EXPECT_LE(2 * std::uint64_t{route.lines.place_bytes}, memory.bytes);
          }
}

TEST(GpuFurtherRoute, MessagesHaveRoomAndFewBlocks) {
  for (const bool by_lines : {true, false})
    for (const std::uint32_t size : {2U, 3U, 4U, 5U, 8U})
      for (const std::uint32_t place : {0U, Layout::kMessagePlaces - 1})
        for (std::uint64_t bytes = 0; bytes <= 1ULL << 33; bytes = bytes * 3 + 7) {
          const Layout layout = layout_of(static_cast<int>(size), true);
          const Range memory = layout.message_of(0, 1, place);
          const Route route = message_route_of(size, memory, bytes, by_lines);
          const std::uint64_t rows = std::uint64_t{route.lines.blocks} * route.lines.warps * route.lines.rows;
          EXPECT_GE(rows * route.lines.rounds * (by_lines ? LineForm::kBytes : UnitForm::kBytes), bytes);
          EXPECT_LE(2 * rows * kRowMemory, memory.bytes);
          EXPECT_LE(messages_at_once(size), kMessagesAtOnce);
          EXPECT_LE(route.blocks, kMessageBlocks);
          EXPECT_LE(route.blocks * messages_at_once(size), kBlocksAtOnce) << "a kernel's messages are to run at once";
          if (size == 2 && place == 0 && bytes > 1U << 30) EXPECT_EQ(route.blocks, kMessageBlocks);
        }
}

}  // namespace
}  // namespace fairway::collectives::gpu
