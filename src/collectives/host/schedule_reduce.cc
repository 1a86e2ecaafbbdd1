// Schedules of the collectives that combine: all_reduce, reduce_scatter, reduce; at the end those in two levels.
#include <bit>

#include "collectives/host/schedule.h"

namespace fairway::collectives {

void ScheduleWriter::all_reduce() {
  if (size() == 1) return begin_in_output();
  if (shape_.algorithm == Algorithm::one_shot) return all_reduce_one_shot();
  if (shape_.algorithm == Algorithm::direct) return all_reduce_direct();
  if (shape_.algorithm == Algorithm::ring) return all_reduce_ring();
  if (shape_.algorithm == Algorithm::hierarchical) return all_reduce_in_levels();
  all_reduce_recursive_doubling();
}

// Where the own values come in depends on the rank, and the output may be where they are: the sum grows in scratch.
void ScheduleWriter::combine_in_order(const Place& own, const Block& into, std::uint64_t index, std::uint64_t scratch) {
  if (index >= pieces(into.bytes)) return;
  const std::uint64_t at = index * piece_, length = std::min(piece_, into.bytes - at);
  const std::uint64_t longest = std::min(piece_, into.bytes);
  use_scratch(scratch + (shape_.wide ? longest / shape_.element_bytes * sizeof(float) : longest));
  const Place sum{Buffer::scratch, scratch};
  for (int peer = 0; peer < size(); ++peer) {
    const bool first = peer == 0;
    if (peer == rank())
      add(shape_.wide ? (first ? Kind::widen : Kind::fold_wide) : (first ? Kind::copy : Kind::fold), -1, moved(own, at),
          sum, length, length);
    else
      add(shape_.wide ? (first ? Kind::receive_wide : Kind::reduce_wide) : (first ? Kind::receive : Kind::reduce), peer,
          sum, sum, length, into.bytes, index);
  }
  if (shape_.wide) return add(Kind::narrow, -1, sum, moved(into.place, at), length, length);
  copy(sum, moved(into.place, at), length);
  finish(moved(into.place, at), length);
}

// Every rank combines all inputs itself, in the order of ranks: the same bits everywhere.
void ScheduleWriter::all_reduce_one_shot() {
  Place own = own_input();
  const bool keeps_own = shape_.in_place && (shape_.wide || rank() > 1);  // the sum begins before its turn comes
  if (keeps_own) {
    use_scratch(bytes());
    own = {Buffer::scratch, 0};
    copy(own_input(), own, bytes());
  }
  const Block input{own, bytes()}, output{own_output(), bytes()};
  const std::uint64_t count = pieces(bytes());
  ahead(
      count,
      [&](std::uint64_t i) {
        for (int k = 1; k < size(); ++k) send(wrap(rank() + k), input, i);
      },
      [&](std::uint64_t i) {
        if (shape_.wide) return combine_in_order(own, output, i, shape_.in_place ? (bytes() + 63) / 64 * 64 : 0);
        const std::uint64_t at = i * piece_, length = std::min(piece_, bytes() - at);
        int next = 2;
        if (rank() == 0)
          reduce_into(output, own, 1, i);
        else if (rank() == 1)
          reduce_into(output, own, 0, i, Kind::reduce_first);
        else
          receive(0, output, i), next = 1;
        for (int peer = next; peer < size(); ++peer) {
          if (peer != rank())
            reduce_into(output, own_output(), peer, i);
          else if (length != 0)
            add(Kind::fold, -1, moved(own, at), moved(own_output(), at), length, length);
        }
        finish(moved(own_output(), at), length);
      });
}

// Each rank combines one part of the vector, of which every other rank sends its own, and sends the result to all.
void ScheduleWriter::all_reduce_direct() {
  const Block mine = part(Buffer::output, rank());
  const auto scatter = [&](std::uint64_t i) {
    for (int k = 1; k < size(); ++k) send(wrap(rank() + k), part(Buffer::input, wrap(rank() + k)), i);
  };
  const auto gather = [&](std::uint64_t i) {
    for (int k = 1; k < size(); ++k) land(wrap(rank() - k), part(Buffer::output, wrap(rank() - k)), i);
  };
  const std::uint64_t count = pieces(part(Buffer::input, 0).bytes);  // no part is longer than the first
  ahead(count, scatter, [&](std::uint64_t i) {
    const Place own{Buffer::input, mine.place.at};
    if (shape_.ordered) {
      combine_in_order(own, mine, i, 0);
    } else {
      for (int k = 1; k < size(); ++k) reduce_into(mine, k == 1 ? own : mine.place, wrap(rank() - k), i);
      if (i < pieces(mine.bytes)) finish(moved(mine.place, i * piece_), std::min(piece_, mine.bytes - i * piece_));
    }
    for (int k = 1; k < size(); ++k) send(wrap(rank() + k), mine, i);
    if (i > 0) gather(i - 1);
  });
  gather(count - 1);
}

// Ranks beyond a power of two hand their input to a partner first and get the result from it last.
void ScheduleWriter::all_reduce_recursive_doubling() {
  begin_in_output();
  const Block all{own_output(), bytes()};
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(size()))), extra = size() - power;
  if (rank() >= power) {
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i) send(rank() - power, all, i);
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i) receive(rank() - power, all, i);
    return;
  }
  if (rank() < extra)
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i) reduce_into(all, all.place, rank() + power, i);
  for (int mask = 1; mask < power; mask *= 2) swap_reduce(rank() ^ mask, all, rank() ^ mask, all, all.place);
  finish(own_output(), bytes());
  if (rank() < extra)
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i) send(rank() + power, all, i);
}

// Patarasuk, Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
void ScheduleWriter::all_reduce_ring() {
  const int next = wrap(rank() + 1), previous = wrap(rank() - 1);
  for (int s = 0; s + 1 < size(); ++s) {
    const Block in = part(Buffer::output, wrap(rank() - s - 1));
    swap_reduce(next, part(s == 0 ? Buffer::input : Buffer::output, wrap(rank() - s)), previous, in,
                {Buffer::input, in.place.at});
  }
  const Block mine = part(Buffer::output, next);
  finish(mine.place, mine.bytes);
  for (int s = 0; s + 1 < size(); ++s)
    swap(next, part(Buffer::output, wrap(next - s)), previous, part(Buffer::output, wrap(rank() - s)));
}

void ScheduleWriter::reduce_scatter() {
  const Block mine{own_output(), bytes()};
  if (size() == 1) return begin_in_output();
  if (shape_.algorithm == Algorithm::ring) {
    use_scratch(bytes());
    const Block partial{{Buffer::scratch, 0}, bytes()};
    for (int s = 0; s + 1 < size(); ++s) {
      const Block out = s == 0 ? equal(Buffer::input, wrap(rank() - 1)) : partial;
      const Place with = equal(Buffer::input, wrap(rank() - s - 2)).place;
      swap_reduce(wrap(rank() + 1), out, wrap(rank() - 1), s + 2 == size() ? mine : partial, with);
    }
  } else {
    const Place own = equal(Buffer::input, rank()).place;
    ahead(
        pieces(bytes()),
        [&](std::uint64_t i) {
          for (int k = 1; k < size(); ++k) send(wrap(rank() + k), equal(Buffer::input, wrap(rank() + k)), i);
        },
        [&](std::uint64_t i) {
          if (shape_.ordered) return combine_in_order(own, mine, i, 0);
          for (int k = 1; k < size(); ++k) reduce_into(mine, k == 1 ? own : mine.place, wrap(rank() - k), i);
        });
    if (shape_.ordered) return;
  }
  finish(own_output(), bytes());
}

void ScheduleWriter::reduce() {
  const bool is_root = rank() == shape_.root;
  if (size() == 1) return begin_in_output();
  if (shape_.algorithm == Algorithm::direct) {  // everything to the root
    const Block all{own_input(), bytes()}, sum{own_output(), bytes()};
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i)
      if (is_root)
        combine_in_order(all.place, sum, i, 0);
      else
        send(shape_.root, all, i);
    return hear_all();
  }
  const int v = wrap(rank() - shape_.root);  // the root is 0
  const bool chain = shape_.algorithm == Algorithm::chain;
  if (!is_root) use_scratch(std::min(piece_, bytes()));
  for (std::uint64_t i = 0; i < pieces(bytes()); ++i) {
    const std::uint64_t at = i * piece_, length = std::min(piece_, bytes() - at);
    const Place sum = is_root ? moved(own_output(), at) : Place{Buffer::scratch, 0};
    Place held = moved(own_input(), at);  // of the input, or the sum so far
    const auto take = [&](int from) {
      add(Kind::reduce, wrap(from + shape_.root), held, sum, length, bytes(), i);
      held = sum;
    };
    const auto give = [&](int to) { add(Kind::send, wrap(to + shape_.root), held, {}, length, bytes(), i); };
    if (chain) {
      if (v + 1 < size()) take(v + 1);
      if (v > 0) give(v - 1);
    } else {
      for (int mask = 1; mask < size(); mask *= 2) {
        if ((v & mask) != 0) {
          give(v - mask);
          break;
        }
        if (v + mask < size()) take(v + mask);
      }
    }
  }
  if (is_root) finish(own_output(), bytes());
  hear_all();
}

// A piece at a time, into scratch memory behind all other: what is sent, combined or kept is the product from then on,
// and no algorithm knows of it. A copy becomes the product itself. Sends of one piece to many ranks share it.
void ScheduleWriter::scale_input() {
  const Place product{Buffer::scratch, (out_.scratch_bytes + 63) / 64 * 64};
  std::vector<Step> steps;
  steps.reserve(out_.steps.size() * 2);
  std::uint64_t at = 0, held = 0;  // which bytes of the input the product is of
  for (Step step : out_.steps) {
    const bool reads = step.kind != Kind::receive && step.kind != Kind::finish && step.from.buffer == Buffer::input;
    if (reads && step.kind == Kind::copy) {
      step.kind = Kind::scale;
    } else if (reads && step.bytes != 0) {
      if (step.from.at != at || step.bytes != held)
        steps.push_back({Kind::scale, -1, step.from, product, step.bytes, step.bytes, false});
      at = step.from.at;
      held = step.bytes;
      step.from = product;
      use_scratch(product.at + held);
    }
    steps.push_back(step);
  }
  out_.steps = std::move(steps);
}

// Schedules in two levels: ranks of a host combine first, and what crosses to other hosts crosses once.

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
