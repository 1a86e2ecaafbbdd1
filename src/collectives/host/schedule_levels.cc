// Schedules in two levels: ranks of a host combine first, and what crosses to other hosts crosses once.
#include <bit>

#include "collectives/host/schedule_writer.h"

namespace fairway::collectives {

// Ranks of each group, in their order; without groups all are of one.
ScheduleWriter::Levels ScheduleWriter::levels() const {
  Levels levels;
  for (int one = 0; one < size(); ++one) {
    const auto group =
        static_cast<std::size_t>(shape_.groups.empty() ? 0 : shape_.groups[static_cast<std::size_t>(one)]);
    if (levels.ranks.size() <= group) levels.ranks.resize(group + 1);
    if (one == rank()) {
      levels.group = static_cast<int>(group);
      levels.place = static_cast<int>(levels.ranks[group].size());
    }
    levels.ranks[group].push_back(one);
  }
  std::size_t least = static_cast<std::size_t>(size());
  for (const auto& ranks : levels.ranks) least = std::min(least, ranks.size());
  levels.parts = parts_in_levels(static_cast<int>(least), bytes());
  return levels;
}

// Rank k of each group owns part k of the vector: it combines that part of its group, then with the owners in the other
// groups, and gives the result to its group. What is too short to be cut has one owner in each group.
void ScheduleWriter::all_reduce_in_levels() {
  const Levels levels = this->levels();
  const std::vector<int>& here = levels.here();
  const int count = static_cast<int>(here.size()), place = levels.place;
  const bool owns = place < levels.parts;
  const auto at = [&](int k) { return here[static_cast<std::size_t>((place + k + count) % count)]; };
  const auto part_at = [&](Buffer buffer, int k) { return part(buffer, (place + k + count) % count, levels.parts); };
  const auto is_owner = [&](int k) { return (place + k + count) % count < levels.parts; };
  const Block mine = owns ? part(Buffer::output, place, levels.parts) : Block{};
  const std::uint64_t network_piece = piece_;
  if (shape_.near_piece_bytes != 0) piece_ = shape_.near_piece_bytes / shape_.element_bytes * shape_.element_bytes;
  const std::uint64_t rounds = pieces(part(Buffer::input, 0, levels.parts).bytes);  // no part is longer

  if (count == 1) begin_in_output();
  if (count > 1)
    ahead(
        rounds,
        [&](std::uint64_t i) {
          for (int k = 1; k < count; ++k)
            if (is_owner(k)) send(at(k), part_at(Buffer::input, k), i);
        },
        [&](std::uint64_t i) {
          const Place own{Buffer::input, mine.place.at};
          for (int k = 1; owns && k < count; ++k) reduce_into(mine, k == 1 ? own : mine.place, at(-k), i);
        });

  if (owns) {
    piece_ = network_piece;
    all_reduce_between_owners(levels, mine);
    if (shape_.near_piece_bytes != 0) piece_ = shape_.near_piece_bytes / shape_.element_bytes * shape_.element_bytes;
  }

  if (count > 1)
    ahead(
        rounds,
        [&](std::uint64_t i) {
          for (int k = 1; owns && k < count; ++k) send(at(k), mine, i);
        },
        [&](std::uint64_t i) {
          for (int k = 1; k < count; ++k)
            if (is_owner(-k)) receive(at(-k), part_at(Buffer::output, -k), i);
        });
}

// In place in the output, among the ranks at this one's place in each group. An average is divided there: what has been
// sent on may still be on its way from where it lies.
void ScheduleWriter::all_reduce_between_owners(const Levels& levels, const Block& block) {
  if (levels.ranks.size() == 1) return finish(block.place, block.bytes);
  Shape shape = shape_;
  shape.size = static_cast<int>(levels.ranks.size());
  shape.rank = levels.group;
  shape.count = block.bytes / shape_.element_bytes;
  shape.in_place = true;
  shape.premul = false;  // the sum of a group
  shape.groups = {};
  shape.algorithm = algorithm_between_groups(shape.size, block.bytes, piece_);
  Schedule inner;
  make_schedule(shape, inner);
  const auto moved_there = [&](Place place) {
    return place.buffer == Buffer::scratch ? place : Place{Buffer::output, block.place.at + place.at};
  };
  use_scratch(inner.scratch_bytes);
  for (Step step : inner.steps) {
    if (step.peer >= 0)
      step.peer = levels.ranks[static_cast<std::size_t>(step.peer)][static_cast<std::size_t>(levels.place)];
    step.from = moved_there(step.from);
    step.into = moved_there(step.into);
    out_.steps.push_back(step);
  }
}

int parts_in_levels(int least, std::uint64_t bytes) {
  constexpr std::uint64_t kWorthCutting = 2U << 10;  // bytes of a part, whose message costs more than its bytes
  return bytes / kWorthCutting < static_cast<std::uint64_t>(least) ? 1 : least;
}

// One message in each round while it is not cut anyway. A long vector is not cut into more flows than a network's
// switch takes (choose.h).
Algorithm algorithm_between_groups(int groups, std::uint64_t bytes, std::uint64_t piece) {
  constexpr std::uint64_t kShort = 64U << 10;
  constexpr int kMostFlows = 4;
  if (bytes <= std::min(kShort, piece)) return Algorithm::recursive_doubling;
  return groups <= kMostFlows ? Algorithm::direct : Algorithm::ring;
}

}  // namespace fairway::collectives
