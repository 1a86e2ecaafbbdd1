#include "collectives/host/schedule.h"

#include <bit>

#include <gtest/gtest.h>

#include "collectives/host/choose.h"
#include "support/sanitized.h"
#include "unit/collectives/schedule_model.h"

// Every schedule, executed on a model: who sends what to whom, apart from engines.
namespace fairway::collectives {
namespace {

using Order = ScheduleModel::Order;

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::barrier,   CollectiveKind::all_reduce,     CollectiveKind::reduce,
    CollectiveKind::broadcast, CollectiveKind::all_gather,     CollectiveKind::gather,
    CollectiveKind::scatter,   CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};

std::uint64_t pieces(std::uint64_t count, std::uint64_t piece) {
  return count == 0 ? 1 : (count + piece - 1) / piece;
}

// Messages of the whole group, by the formulas of docs/collective-algorithms.md; `piece` in elements.
std::uint64_t formula(const Shape& shape, std::uint64_t piece) {
  const auto n = static_cast<std::uint64_t>(shape.size), m = pieces(shape.count, piece);
  if (n == 1) return 0;
  const std::uint64_t barrier = n * static_cast<std::uint64_t>(std::bit_width(n - 1));
  std::uint64_t parts = 0;  // pieces of a vector that is cut into n parts
  for (std::uint64_t i = 0; i < n; ++i) parts += pieces(shape.count / n + (i < shape.count % n ? 1 : 0), piece);
  switch (shape.kind) {
    case CollectiveKind::barrier: return barrier;
    case CollectiveKind::all_reduce: {
      if (shape.algorithm == Algorithm::one_shot) return n * (n - 1) * m;
      if (shape.algorithm != Algorithm::recursive_doubling) return 2 * (n - 1) * parts;
      const std::uint64_t power = std::bit_floor(n);
      return (power * static_cast<std::uint64_t>(std::bit_width(power) - 1) + 2 * (n - power)) * m;
    }
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
    case CollectiveKind::scatter: return (n - 1) * m + (shape.local ? 0 : barrier);
    case CollectiveKind::all_gather: {
      if (shape.algorithm != Algorithm::bruck) return n * (n - 1) * m;
      std::uint64_t each = 0;
      for (std::uint64_t have = 1; have < n; have *= 2) each += pieces(shape.count * std::min(have, n - have), piece);
      return n * each;
    }
    case CollectiveKind::reduce_scatter: return n * (n - 1) * m;
    case CollectiveKind::all_to_all: {
      if (shape.algorithm != Algorithm::bruck) return n * (n - 1) * m;
      std::uint64_t each = 0;
      for (std::uint64_t distance = 1; distance < n; distance *= 2) {
        std::uint64_t blocks = 0;
        for (std::uint64_t i = 0; i < n; ++i) blocks += (i & distance) != 0 ? 1 : 0;
        each += pieces(shape.count * blocks, piece);
      }
      return n * each;
    }
    case CollectiveKind::all_to_allv: break;
  }
  return 0;
}

// Every algorithm of every kind with these sizes; `premul`: of those that combine.
void try_all(int size, std::uint64_t count, std::uint64_t piece, std::uint64_t seed, bool ordered = false,
             bool premul = false, bool local = false) {
  for (const CollectiveKind kind : kKinds) {
    if (premul && kind != CollectiveKind::all_reduce && kind != CollectiveKind::reduce &&
        kind != CollectiveKind::reduce_scatter)
      continue;
    for (const Algorithm algorithm : algorithms_of(kind, ordered)) {
      for (const bool in_place : {false, true}) {
        Shape shape;
        shape.kind = kind;
        shape.algorithm = algorithm;
        shape.size = size;
        shape.root = static_cast<int>(seed % static_cast<std::uint64_t>(size));
        shape.count = count;
        shape.element_bytes = 8;
        shape.piece_bytes = piece * 8 + seed % 8;  // a piece is whole elements
        shape.in_place = in_place;
        shape.average = !premul && seed % 2 == 1;
        shape.premul = premul;
        shape.ordered = ordered;
        shape.local = local;
        ScheduleModel model(shape);
        for (const Order order : {Order::round_robin, Order::first_that_can, Order::last_that_can, Order::random}) {
          if (size > 9 && order != Order::random) continue;
          const std::string wrong = model.run(order, seed, kLeastRoom);
          ASSERT_EQ(wrong, "") << to_string(kind) << " by " << to_string(algorithm) << ", " << size << " ranks, "
                               << count << " elements, pieces of " << piece << (in_place ? ", in place" : "")
                               << (premul ? ", multiplied" : "");
          ASSERT_EQ(model.messages(), formula(shape, piece))
              << to_string(kind) << " by " << to_string(algorithm) << ", " << size << " ranks, " << count;
        }
      }
    }
  }
}

TEST(Schedule, MovesAndCombinesEveryElementForAnyNumberOfRanks) {
  for (int size = 1; size <= 20; ++size)
    for (const std::uint64_t count : {0, 1, 3, 7, 23})
      try_all(size, count, 3, count + static_cast<std::uint64_t>(size));
}

TEST(Schedule, CombinesInTheOrderOfRanksWhereThatIsAsked) {
  for (int size = 1; size <= 17; ++size)
    for (const std::uint64_t count : {0, 1, 7, 23, 60})
      try_all(size, count, 3, count + static_cast<std::uint64_t>(size), true);
}

TEST(Schedule, WithLocalCompletionHasNoBarrier) {
  for (int size = 1; size <= 17; ++size)
    for (const std::uint64_t count : {0, 1, 7, 23})
      try_all(size, count, 3, count + static_cast<std::uint64_t>(size), false, false, true);
}

TEST(Schedule, MultipliesEveryElementOfTheInputOnce) {
  for (const bool ordered : {false, true})
    for (int size = 1; size <= 17; ++size)
      for (const std::uint64_t count : {0, 1, 3, 7, 23, 60})
        try_all(size, count, 3, count + static_cast<std::uint64_t>(size), ordered, true);
}

TEST(Schedule, HoldsUpToSixtyFourRanks) {
  for (int size = 21; size <= 64; size += kSanitized ? 7 : 1)
    try_all(size, size == 24 ? 65 : 2, 2, static_cast<std::uint64_t>(size));
}

TEST(Schedule, MovesLongBlocksInPieces) {
  for (const int size : {2, 3, 5, 8})
    for (const std::uint64_t count : {64, 100, 257}) try_all(size, count, 4, count);
}

bool overlap(const Place& a, const Place& b, std::uint64_t bytes, std::uint64_t of_b) {
  return a.buffer == b.buffer && a.at < b.at + of_b && b.at < a.at + bytes;
}

// A store past the caches makes who reads there next wait for memory: in no schedule that is one of its own steps.
TEST(Schedule, StoresPastTheCachesOnlyWhatItReadsNoMore) {
  std::size_t past = 0;
  for (const CollectiveKind kind : kKinds)
    for (const Algorithm algorithm : algorithms_of(kind))
      for (const std::uint64_t count : {std::uint64_t{1} << 10, std::uint64_t{1} << 20})
        for (int size = 2; size <= 9; ++size)
          for (int rank = 0; rank < size; ++rank) {
            Shape shape;
            shape.kind = kind;
            shape.algorithm = algorithm;
            shape.rank = rank;
            shape.size = size;
            shape.root = size / 2;
            shape.count = count;
            shape.element_bytes = 8;
            shape.piece_bytes = 1 << 20;
            Schedule schedule;
            make_schedule(shape, schedule);
            for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
              const Step& step = schedule.steps[i];
              if (!step.past_caches) continue;
              ++past;
              ASSERT_GT(count, 1U << 10) << "a cache would have kept so little";
              ASSERT_TRUE(step.kind == Step::Kind::receive || step.kind == Step::Kind::copy);
              for (std::size_t later = i + 1; later < schedule.steps.size(); ++later) {
                const Step& reader = schedule.steps[later];
                const bool reads = reader.kind != Step::Kind::receive && reader.bytes != 0;
                ASSERT_FALSE(reads && overlap(step.into, reader.from, step.bytes, reader.bytes))
                    << to_string(kind) << " by " << to_string(algorithm) << ", rank " << rank << " of " << size;
              }
            }
          }
  EXPECT_GT(past, 1000U);
}

// What the model is for: with room for two messages a schedule that looks ahead stands still.
TEST(Schedule, NeedsTheRoomThatItAsksFor) {
  Shape shape;
  shape.kind = CollectiveKind::all_reduce;
  shape.algorithm = Algorithm::direct;
  shape.size = 5;
  shape.count = 100;
  shape.element_bytes = 8;
  shape.piece_bytes = 32;
  EXPECT_EQ(ScheduleModel(shape).run(Order::round_robin, 1, kLeastRoom), "");
  EXPECT_NE(ScheduleModel(shape).run(Order::round_robin, 1, kLeastRoom - 2), "");
}

TEST(Schedule, MovesBlocksOfAnySizes) {
  for (int size = 1; size <= 17; ++size) {
    std::vector<std::vector<std::size_t>> blocks(static_cast<std::size_t>(size));
    std::uint64_t x = static_cast<std::uint64_t>(size);
    for (auto& row : blocks)
      for (int i = 0; i < size; ++i) {
        x = x * 6364136223846793005U + 1442695040888963407U;
        row.push_back((x >> 33) % 4 == 0 ? 0 : (x >> 40) % 37);
      }
    Shape shape;
    shape.kind = CollectiveKind::all_to_allv;
    shape.algorithm = Algorithm::direct;
    shape.size = size;
    shape.element_bytes = 8;
    shape.piece_bytes = 32;
    ScheduleModel model(shape, blocks);
    for (const Order order : {Order::round_robin, Order::first_that_can, Order::last_that_can, Order::random})
      ASSERT_EQ(model.run(order, 1, kLeastRoom), "") << size << " ranks";
  }
}

}  // namespace
}  // namespace fairway::collectives
