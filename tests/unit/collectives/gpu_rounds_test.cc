#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "collectives/gpu/device/work.h"
#include "collectives/gpu/plan.h"
#include "support/cuda/cpu_block.h"

// The blocks of a call, run by threads on memory of the host.
namespace fairway::collectives::gpu {
namespace {

TEST(GpuRounds, WrapAroundWithoutZeroAndInTurns) {
  EXPECT_EQ(next_round(0), 1U);
  EXPECT_EQ(next_round(0xFFFFFFFF), 4U);
  EXPECT_EQ(unit_place_of(next_round(0xFFFFFFFF)), (unit_place_of(0xFFFFFFFF) + 1) % kUnitPlaces);
  EXPECT_EQ(piece_place_of(next_round(0xFFFFFFFF)), (piece_place_of(0xFFFFFFFF) + 1) % kPiecePlaces);
}

void run(const Call& call, unsigned block) {
  const bool by_lines = call.lines.rounds != 0;
  if (!by_lines)
    run_block<std::uint32_t, support::CpuBlock, Family::units>(call, block);
  else if (call.way == Way::two_shot || call.size > 2)
    run_block<std::uint32_t, support::CpuBlock, Family::few>(call, block);
  else
    run_block<std::uint32_t, support::CpuBlock, Family::pair>(call, block);
}
void run_all_blocks(const Call& call) {
  for (unsigned block = 0; block < call.blocks; ++block) run(call, block);
}

enum class By { units, pieces, two_shot, lines, area_lines, two_shot_lines };

// Two ranks, a thread each, on memory that holds flags as they would be after a turn of all numbers.
class TwoRanks {
 public:
  TwoRanks() : layout(layout_of(2, true)), scratch(2, std::vector<std::uint64_t>(layout.bytes / 8)) {}
  [[nodiscard]] Call call(unsigned rank, By by, std::uint32_t* values, std::uint64_t count) {
    Call made = {};
    for (unsigned i = 0; i < 2; ++i) made.scratch[i] = bytes(i);
    made.input = reinterpret_cast<unsigned char*>(values);
    made.output = reinterpret_cast<unsigned char*>(values);
    made.count = count;
    made.digest = 0x1234567812345678;
    made.nanoseconds = 20'000'000'000;
    made.report = &report;
    made.stop = &stop;
    made.told = &told[rank];
    made.place_at = Layout::place_at(0);
    made.units = {layout.own_at, layout.unit_count};
    made.area = layout.area;
    made.wants_area = by == By::pieces || by == By::two_shot || by == By::area_lines ? 1 : 0;
    made.rank = rank;
    made.size = 2;
    made.blocks = 1;
    made.work = Work::reduce_to_all;
    made.way = by == By::two_shot || by == By::two_shot_lines ? Way::two_shot : Way::one_shot;
    if (by == By::units || by == By::pieces || by == By::two_shot) return made;
    const Route route = route_of(layout, 0, Work::reduce_to_all, count * sizeof *values, Algorithm::automatic, true);
    made.lines = made.area_lines = route.lines;
    made.part_bytes = (count * sizeof *values / 2 + 31) / 16 * 16;
    made.blocks = route.blocks;
    made.lines.at = layout.own_at;
    made.area_lines.at = layout.area.pieces_at;
    return made;
  }
  unsigned char* bytes(unsigned rank) { return reinterpret_cast<unsigned char*>(scratch[rank].data()); }
  PlaceHead& head(unsigned rank) { return *reinterpret_cast<PlaceHead*>(bytes(rank) + Layout::place_at(0)); }
  AreaHead& area(unsigned rank) { return *reinterpret_cast<AreaHead*>(bytes(rank) + layout.area.head_at); }

  const Layout layout;
  std::vector<std::vector<std::uint64_t>> scratch;
  Report report = {};
  std::uint32_t stop = 0;
  Told told[2] = {};
};

TEST(GpuRounds, ValuesAreRightWhileTheNumbersWrapAround) {
  constexpr std::uint64_t kCount = 100;
  for (const By by : {By::units, By::pieces, By::two_shot}) {
    TwoRanks ranks;
    for (unsigned rank = 0; rank < 2; ++rank) {
      ranks.head(rank).unit_rounds[0] = ranks.area(rank).piece_rounds[0] = 0xFFFFFFFA;
      for (unsigned from = 0; from < 2; ++from) ranks.scratch[rank][ranks.layout.area.flags_at / 8 + from] = 0xFFFFFFFA;
      // What was sent in rounds 4 and 5 of the turn before lies in every unit.
      const std::uint32_t count = ranks.layout.unit_count;
      for (std::uint32_t i = 0; by == By::units && i < 2 * count; ++i)
        for (unsigned half = 0; half < 2; ++half) {
          const std::uint32_t round = i < count ? 4 : 5;
          ranks.scratch[rank][ranks.layout.own_at / 8 + i * 2 + half] =
              std::uint64_t{half == 0 ? round : round + 0x12345678} << 32 | 0xBAD;
        }
    }
    std::vector<std::thread> threads;
    std::vector<int> wrong(2);
    for (unsigned rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        for (std::uint32_t turn = 0; turn < 16; ++turn) {
          std::vector<std::uint32_t> values(kCount, rank + 1 + turn);
          if (rank == turn % 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          run(ranks.call(rank, by, values.data(), kCount), 0);
          for (const std::uint32_t value : values) wrong[rank] += value != 3 + 2 * turn;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ranks.report.state, 0U);
    EXPECT_EQ(wrong[0] + wrong[1], 0) << static_cast<int>(by);
    EXPECT_EQ(ranks.head(0).calls, 16U);
    EXPECT_LT(by == By::units ? ranks.head(0).unit_rounds[0] : ranks.area(0).piece_rounds[0], 64U) << "it has wrapped";
  }
}

// What lies in units that no call of a turn has used would be taken in the next turn, so it is cleared once in a while.
TEST(GpuRounds, UnitsThatNoCallUsesAreCleared) {
  constexpr std::uint64_t kOld = std::uint64_t{4} << 32 | 0xBAD;
  TwoRanks ranks;
  const auto units = [&](unsigned rank) {
    return std::span(ranks.scratch[rank]).subspan(ranks.layout.own_at / 8, std::size_t{4} * ranks.layout.unit_count);
  };
  for (unsigned rank = 0; rank < 2; ++rank) {
    ranks.head(rank).unit_rounds[0] = 0x40000001;  // rounds 2 and 3 of a quarter of the numbers follow
    std::ranges::fill(units(rank), kOld);
  }
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      for (int turn = 0; turn < 2; ++turn) {
        std::vector<std::uint32_t> values(10, 1);
        run(ranks.call(rank, By::units, values.data(), values.size()), 0);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ranks.report.state, 0U);
  for (unsigned rank = 0; rank < 2; ++rank) EXPECT_EQ(std::ranges::count(units(rank), kOld), 0) << rank;
}

// Calls of other sizes use other rows of the places, one after the other.
TEST(GpuRounds, ValuesAreRightByLines) {
  for (const By by : {By::lines, By::area_lines, By::two_shot_lines}) {
    TwoRanks ranks;
    std::vector<std::thread> threads;
    std::vector<std::uint64_t> wrong(2);
    for (unsigned rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        for (std::uint32_t turn = 0; turn < 24; ++turn) {
          const std::uint64_t count = turn % 4 == 0 ? 1 : turn % 4 == 1 ? 70'001 : turn % 4 == 2 ? 119 : 121;
          std::vector<std::uint32_t> values(count);
          for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<std::uint32_t>(i * (rank + 1) + turn);
          if (rank == turn % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          run_all_blocks(ranks.call(rank, by, values.data(), count));
          for (std::uint64_t i = 0; i < count; ++i)
            wrong[rank] += values[i] != static_cast<std::uint32_t>(3 * i + 2 * turn);
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ranks.report.state, 0U) << static_cast<int>(by);
    EXPECT_EQ(wrong[0] + wrong[1], 0U) << static_cast<int>(by);
    const bool in_area = by == By::area_lines;
    const std::uint64_t rounds = in_area ? round_in(ranks.area(0).owner) : ranks.head(0).line_round;
    EXPECT_GE(rounds, by == By::two_shot_lines ? 48U : 24U);
    EXPECT_EQ(rounds, in_area ? ranks.area(0).done[1] : ranks.head(1).line_round);
  }
}

// Who has the area, of two places whose calls come in another order on each rank. Every value is right whichever way a
// call goes, and the one that finds it taken does not wait for it.
TEST(GpuArea, OneThatFindsItTakenGoesByUnits) {
  constexpr std::uint64_t kCount = 5000;
  TwoRanks ranks;
  ranks.area(0).owner = area_owner(0, true, 3);  // by a call that this rank has not ended
  std::vector<std::uint32_t> mine(kCount, 1), theirs(kCount, 2);
  std::thread other([&] { run(ranks.call(1, By::pieces, theirs.data(), kCount), 0); });
  run(ranks.call(0, By::pieces, mine.data(), kCount), 0);
  other.join();
  EXPECT_EQ(ranks.report.state, 0U);
  EXPECT_EQ(mine.front() + mine.back() + theirs.back(), 9U);
  EXPECT_NE(ranks.head(0).unit_rounds[0], 0U);
  EXPECT_EQ(ranks.area(0).piece_rounds[0] + ranks.area(1).piece_rounds[0], 0U);
  EXPECT_EQ(ranks.area(0).owner, area_owner(0, true, 3)) << "it is not this call's to give back";
}

// A block that has nothing to do in a call may look for the grant when the other ranks are in the next call.
TEST(GpuArea, ABlockThatLooksLateFindsTheGrantOfItsCall) {
  for (const bool has : {false, true}) {
    TwoRanks ranks;
    Call call = ranks.call(1, By::area_lines, nullptr, 100);
    const std::uint32_t idle = call.blocks++;
    call.nanoseconds = 1'000'000'000;
    ranks.head(1).grants_told[1] = grant_word(1, has, 10);
    ranks.head(1).grants_told[0] = grant_word(2, !has, 20);
    run(call, idle);
    EXPECT_EQ(ranks.report.state, 0U) << "it has waited for a word that was overwritten";
    EXPECT_EQ(ranks.head(1).ended_blocks, 1U);
  }
}

TEST(GpuArea, AnotherPlaceWaitsUntilAllAreDoneWithIt) {
  constexpr std::uint64_t kCount = 5000;
  TwoRanks ranks;
  ranks.area(0).owner = area_owner(7, false, 5);  // whose call rank 0 has ended and rank 1 has not
  ranks.area(0).done[1] = 4;
  std::vector<std::uint32_t> mine(kCount, 1), theirs(kCount, 2);
  std::thread other([&] { run(ranks.call(1, By::pieces, theirs.data(), kCount), 0); });
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(std::atomic_ref(ranks.head(1).grants_told[1]).load(), 0U)
        << "it has the area while another call reads there";
    std::atomic_ref(ranks.area(0).done[1]).store(5);
  });
  run(ranks.call(0, By::pieces, mine.data(), kCount), 0);
  other.join();
  late.join();
  EXPECT_EQ(mine.back() + theirs.back(), 6U);
  EXPECT_NE(ranks.area(0).piece_rounds[0], 0U);
  EXPECT_EQ(ranks.area(0).owner, area_owner(0, false, 6));
  EXPECT_EQ(ranks.area(0).done[1], 6U);
}

// Of each way, a call that waits says so and for whom, and no longer once it has ended.
TEST(GpuTold, WhereACallIsAndForWhomItWaits) {
  for (const By by : {By::units, By::pieces, By::lines, By::area_lines, By::two_shot_lines}) {
    TwoRanks ranks;
    for (std::uint32_t turn = 1; turn < 4; ++turn) {
      std::vector<std::uint32_t> mine(5000, 1), theirs(5000, 2);
      std::thread late([&] {
        const auto waits = [&] { return std::atomic_ref(ranks.told[0].waits).load(); };
        while (waits() != told_waits(turn, 1)) std::this_thread::yield();
        EXPECT_EQ(std::atomic_ref(ranks.told[0].entered).load(), told_entered(turn, 3));
        EXPECT_EQ(std::atomic_ref(ranks.told[0].number).load(), 100U + turn);
        EXPECT_NE(std::atomic_ref(ranks.told[1].entered).load(), told_entered(turn, 3));
        const auto so_far = std::atomic_ref(ranks.told[0].nanoseconds).load();
        while (std::atomic_ref(ranks.told[0].nanoseconds).load() <= so_far) std::this_thread::yield();
        Call call = ranks.call(1, by, theirs.data(), 5000);
        call.kind = 3, call.number = 100 + turn;
        run_all_blocks(call);
      });
      Call call = ranks.call(0, by, mine.data(), 5000);
      call.kind = 3, call.number = 100 + turn;
      run_all_blocks(call);
      late.join();
      EXPECT_EQ(ranks.told[0].waits, 0U);
      EXPECT_EQ(mine[4999], 3U);
    }
  }
}

// What another rank told of its failure: in this rank's call, in an earlier one, or in a later one, before which it has
// ended this one well.
TEST(GpuFailureWords, OfALaterCallEndNoEarlierOne) {
  for (const std::uint32_t call : {4U, 5U, 6U}) {
    TwoRanks ranks;
    ranks.head(0).calls = ranks.head(1).calls = 4;  // both are in the fifth
    reinterpret_cast<ScratchHead*>(ranks.bytes(0))->told[1] = told_word(Cause::late, 1, Waits::units, 0, call);
    std::vector<std::uint32_t> mine(10, 1), theirs(10, 2);
    std::thread late([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      run(ranks.call(1, By::units, theirs.data(), 10), 0);
    });
    run(ranks.call(0, By::units, mine.data(), 10), 0);
    late.join();
    if (call > 5) {
      EXPECT_EQ(ranks.report.state, 0U);
      EXPECT_EQ(mine[9], 3U);
    } else {
      EXPECT_EQ(ranks.report.cause, Cause::told);
      EXPECT_EQ(ranks.report.code, static_cast<std::uint32_t>(Cause::late));
      EXPECT_EQ(ranks.report.by, 1U);
    }
  }
  TwoRanks other_place;
  reinterpret_cast<ScratchHead*>(other_place.bytes(0))->told[1] = told_word(Cause::gone, 1, Waits::units, 7, 99);
  std::vector<std::uint32_t> mine(10, 1);
  run(other_place.call(0, By::units, mine.data(), 10), 0);
  EXPECT_EQ(other_place.report.cause, Cause::told) << "of another stream: there is no order";
}

}  // namespace
}  // namespace fairway::collectives::gpu
