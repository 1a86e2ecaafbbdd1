#include "collectives/host/schedule.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace fairway::collectives {
namespace {

constexpr std::uint64_t kPastCaches = 8U << 20;  // bytes that all ranks write

}  // namespace

void make_schedule(const Shape& shape, Schedule& out) {
  ScheduleWriter writer(shape, out);
  switch (shape.kind) {
    case CollectiveKind::barrier: return writer.barrier();
    case CollectiveKind::all_reduce: writer.all_reduce(); break;
    case CollectiveKind::reduce: writer.reduce(); break;
    case CollectiveKind::broadcast: return writer.broadcast();
    case CollectiveKind::all_gather: return writer.all_gather();
    case CollectiveKind::gather: return writer.gather();
    case CollectiveKind::scatter: return writer.scatter();
    case CollectiveKind::reduce_scatter: writer.reduce_scatter(); break;
    case CollectiveKind::all_to_all: return writer.all_to_all();
    case CollectiveKind::all_to_allv: return writer.all_to_allv();
  }
  if (shape.premul) writer.scale_input();
}

void ScheduleWriter::send(int peer, const Block& block, std::uint64_t index) {
  if (index >= pieces(block.bytes)) return;
  const std::uint64_t at = index * piece_;
  add(Kind::send, peer, moved(block.place, at), {}, std::min(piece_, block.bytes - at), block.bytes, index);
}

void ScheduleWriter::receive(int peer, const Block& block, std::uint64_t index) {
  if (index >= pieces(block.bytes)) return;
  const std::uint64_t at = index * piece_;
  add(Kind::receive, peer, {}, moved(block.place, at), std::min(piece_, block.bytes - at), block.bytes, index);
}

void ScheduleWriter::land(int peer, const Block& block, std::uint64_t index) {
  if (index >= pieces(block.bytes)) return;
  receive(peer, block, index);
  out_.steps.back().past_caches = outgrows_caches();
}

void ScheduleWriter::keep(Place from, Place into, std::uint64_t length) {
  if (length == 0) return;
  copy(from, into, length);
  out_.steps.back().past_caches = outgrows_caches();
}

void ScheduleWriter::keep_piece(const Block& into, std::uint64_t index) {
  const std::uint64_t at = index * piece_;
  if (!shape_.in_place && at < into.bytes)
    keep(moved(own_input(), at), moved(into.place, at), std::min(piece_, into.bytes - at));
}

// As if all ranks were on one host, and each got as much as this one.
bool ScheduleWriter::outgrows_caches() const {
  const auto n = static_cast<std::uint64_t>(size());
  const auto& counts = shape_.receive.counts;
  std::uint64_t own = bytes();
  if (shape_.kind == CollectiveKind::all_gather || shape_.kind == CollectiveKind::all_to_all) own *= n;
  if (shape_.kind == CollectiveKind::all_to_allv)
    own = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) * shape_.element_bytes;
  return own * n >= kPastCaches;
}

void ScheduleWriter::reduce_into(const Block& into, const Place& with, int peer, std::uint64_t index, Kind kind) {
  if (index >= pieces(into.bytes)) return;
  const std::uint64_t at = index * piece_;
  add(kind, peer, moved(with, at), moved(into.place, at), std::min(piece_, into.bytes - at), into.bytes, index);
}

void ScheduleWriter::copy(Place from, Place into, std::uint64_t length) {
  if (length != 0) add(Kind::copy, -1, from, into, length, length);
}

void ScheduleWriter::finish(Place into, std::uint64_t length) {
  if (shape_.average && length != 0) add(Kind::finish, -1, {}, into, length, length);
}

// One piece ahead, so that the way of a piece is hidden behind the work for the one before.
void ScheduleWriter::swap(int to, const Block& out, int from, const Block& in) {
  ahead(
      std::max(pieces(out.bytes), pieces(in.bytes)), [&](std::uint64_t i) { send(to, out, i); },
      [&](std::uint64_t i) { receive(from, in, i); });
}

void ScheduleWriter::swap_reduce(int to, const Block& out, int from, const Block& in, const Place& with) {
  ahead(
      std::max(pieces(out.bytes), pieces(in.bytes)), [&](std::uint64_t i) { send(to, out, i); },
      [&](std::uint64_t i) { reduce_into(in, with, from, i); });
}

// Hensgen, Finkel, Manber: "Two algorithms for barrier synchronization", 1988.
void ScheduleWriter::barrier(int direction) {
  const Block nothing{own_output(), 0};
  for (int distance = 1; distance < size(); distance *= 2) {
    send(wrap(rank() + direction * distance), nothing, 0);
    receive(wrap(rank() - direction * distance), nothing, 0);
  }
}

namespace {

// The buffer whose blocks are one for each rank and move by themselves; scratch: none is.
Buffer blocks_of(const Shape& shape) {
  if (shape.algorithm != Algorithm::ring) return Buffer::scratch;
  if (shape.kind == CollectiveKind::all_gather) return Buffer::output;
  return shape.kind == CollectiveKind::reduce_scatter ? Buffer::input : Buffer::scratch;
}

bool takes_any_place(const Shape& shape) {
  switch (shape.kind) {
    case CollectiveKind::barrier:
    case CollectiveKind::broadcast: return true;
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce: return !shape.ordered && !shape.wide;
    default: return !shape.ordered && !shape.wide && blocks_of(shape) != Buffer::scratch;
  }
}

}  // namespace

std::vector<int> order_of(const std::vector<Words>& words) {
  std::vector<int> order(words.size());
  std::iota(order.begin(), order.end(), 0);
  const auto first = [&](int rank, bool node) {
    const Words& own = words[static_cast<std::size_t>(rank)];
    return std::find_if(words.begin(), words.end(),
                        [&](const Words& one) { return one.host == own.host && (!node || one.node == own.node); }) -
           words.begin();
  };
  std::vector<std::tuple<std::ptrdiff_t, std::ptrdiff_t, int>> places;
  for (const int rank : order) places.emplace_back(first(rank, false), first(rank, true), rank);
  std::sort(places.begin(), places.end());
  for (std::size_t i = 0; i < places.size(); ++i) order[i] = std::get<2>(places[i]);
  if (std::is_sorted(order.begin(), order.end())) order.clear();
  return order;
}

std::vector<int> groups_of(const std::vector<Words>& words) {
  for (const bool nodes : {false, true}) {
    std::vector<int> groups;
    std::vector<const Words*> firsts;
    for (const Words& one : words) {
      if (nodes && one.node < 0) return {};
      const auto known = std::find_if(firsts.begin(), firsts.end(), [&](const Words* first) {
        return first->host == one.host && (!nodes || first->node == one.node);
      });
      groups.push_back(static_cast<int>(known - firsts.begin()));
      if (known == firsts.end()) firsts.push_back(&one);
    }
    if (firsts.size() == words.size()) return {};
    if (firsts.size() > 1) return groups;
  }
  return {};
}

void make_schedule_along(std::span<const int> order, const Shape& shape, Schedule& out) {
  if (order.empty() || !takes_any_place(shape)) return make_schedule(shape, out);
  const auto place = [&](int rank) {
    return static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
  };
  Shape placed = shape;
  placed.rank = place(shape.rank);
  placed.root = place(shape.root);
  make_schedule(placed, out);
  const Buffer blocks = blocks_of(shape);
  const std::uint64_t block = shape.count * shape.element_bytes;
  const auto move = [&](Place& at) {
    if (blocks == Buffer::scratch || at.buffer != blocks || block == 0 || at.at >= block * order.size()) return;
    at.at = static_cast<std::uint64_t>(order[at.at / block]) * block + at.at % block;
  };
  for (Step& step : out.steps) {
    if (step.peer >= 0) step.peer = order[static_cast<std::size_t>(step.peer)];
    move(step.from);
    move(step.into);
  }
}

// Schedules of the collectives that move and combine nothing.

void ScheduleWriter::broadcast() {
  const bool is_root = rank() == shape_.root;
  const int v = wrap(rank() - shape_.root);  // the root is 0
  const Block all{is_root ? own_input() : own_output(), bytes()};
  const bool chain = shape_.algorithm == Algorithm::chain;
  int parent = 1;  // its distance: the lowest bit of v, for the root beyond all
  while (parent < size() && (v & parent) == 0) parent *= 2;
  const bool is_last = v + 1 == size() || (!chain && parent == 1);  // who sends on what has come reads it again
  for (std::uint64_t i = 0; i < pieces(bytes()); ++i) {
    const int before = wrap(v - (chain ? 1 : parent) + shape_.root);
    if (!is_root && is_last) land(before, all, i);
    if (!is_root && !is_last) receive(before, all, i);
    if (chain) {
      if (v + 1 < size()) send(wrap(v + 1 + shape_.root), all, i);
    } else {
      for (int mask = parent / 2; mask > 0; mask /= 2)
        if (v + mask < size()) send(wrap(v + mask + shape_.root), all, i);
    }
    if (is_root) keep_piece({own_output(), bytes()}, i);
  }
  hear_all(-1);  // against the way of the pieces: where they are still on their way, its messages would hold them up
}

void ScheduleWriter::all_gather() {
  if (shape_.algorithm == Algorithm::bruck && size() > 1) return all_gather_bruck();
  if (shape_.algorithm != Algorithm::ring || size() == 1) return all_gather_direct();
  if (!shape_.in_place) copy(own_input(), equal(Buffer::output, rank()).place, bytes());
  for (int s = 0; s + 1 < size(); ++s)
    swap(wrap(rank() + 1), equal(Buffer::output, wrap(rank() - s)), wrap(rank() - 1),
         equal(Buffer::output, wrap(rank() - s - 1)));
}

void ScheduleWriter::all_gather_direct() {
  const Block mine{own_input(), bytes()};
  ahead(
      pieces(bytes()),
      [&](std::uint64_t i) {
        for (int k = 1; k < size(); ++k) send(wrap(rank() + k), mine, i);
        keep_piece(equal(Buffer::output, rank()), i);
      },
      [&](std::uint64_t i) {
        for (int k = 1; k < size(); ++k) land(wrap(rank() - k), equal(Buffer::output, wrap(rank() - k)), i);
      });
}

// Bruck and others: "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997.
void ScheduleWriter::all_gather_bruck() {
  use_scratch(bytes() * static_cast<std::uint64_t>(size()));
  copy(shape_.in_place ? equal(Buffer::output, rank()).place : own_input(), {Buffer::scratch, 0}, bytes());
  for (int have = 1; have < size(); have *= 2) {
    const auto length = bytes() * static_cast<std::uint64_t>(std::min(have, size() - have));
    swap(wrap(rank() - have), {{Buffer::scratch, 0}, length}, wrap(rank() + have),
         {equal(Buffer::scratch, have).place, length});
  }
  for (int i = 0; i < size(); ++i)
    copy(equal(Buffer::scratch, i).place, equal(Buffer::output, wrap(rank() + i)).place, bytes());
}

void ScheduleWriter::gather() {
  if (rank() != shape_.root) {
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i) send(shape_.root, {own_input(), bytes()}, i);
  } else {
    if (!shape_.in_place) keep(own_input(), equal(Buffer::output, rank()).place, bytes());
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i)
      for (int k = 1; k < size(); ++k) land(wrap(rank() + k), equal(Buffer::output, wrap(rank() + k)), i);
  }
  hear_all();
}

void ScheduleWriter::scatter() {
  if (rank() != shape_.root) {
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i) land(shape_.root, {own_output(), bytes()}, i);
  } else {
    if (!shape_.in_place) keep(equal(Buffer::input, rank()).place, own_output(), bytes());
    for (std::uint64_t i = 0; i < pieces(bytes()); ++i)
      for (int k = 1; k < size(); ++k) send(wrap(rank() + k), equal(Buffer::input, wrap(rank() + k)), i);
  }
  hear_all();
}

void ScheduleWriter::all_to_all() {
  if (shape_.algorithm == Algorithm::bruck && size() > 1) return all_to_all_bruck();
  if (shape_.in_place) return all_to_all_in_place();
  keep(equal(Buffer::input, rank()).place, equal(Buffer::output, rank()).place, bytes());
  if (size() == 1) return;
  ahead(
      pieces(bytes()),
      [&](std::uint64_t i) {
        for (int k = 1; k < size(); ++k) send(wrap(rank() + k), equal(Buffer::input, wrap(rank() + k)), i);
      },
      [&](std::uint64_t i) {
        for (int k = 1; k < size(); ++k) land(wrap(rank() - k), equal(Buffer::output, wrap(rank() - k)), i);
      });
}

// In round k the ranks whose sum is k, modulo the size, exchange: the block that goes makes room for the one that
// comes.
void ScheduleWriter::all_to_all_in_place() {
  for (int k = 0; k < size(); ++k) {
    const int peer = wrap(k - rank());
    if (peer != rank()) swap(peer, equal(Buffer::output, peer), peer, equal(Buffer::output, peer));
  }
}

// Bruck's: in log2(size) rounds every block travels the binary digits of its distance.
void ScheduleWriter::all_to_all_bruck() {
  const auto blocks = static_cast<std::uint64_t>(size());
  use_scratch(bytes() * 3 * blocks);  // the rotated blocks, those that go, those that come
  for (int i = 0; i < size(); ++i)
    copy(equal(Buffer::input, wrap(rank() + i)).place, equal(Buffer::scratch, i).place, bytes());
  for (int distance = 1; distance < size(); distance *= 2) {
    int count = 0;
    for (int i = 0; i < size(); ++i)
      if ((i & distance) != 0)
        copy(equal(Buffer::scratch, i).place, equal(Buffer::scratch, size() + count++).place, bytes());
    const auto length = bytes() * static_cast<std::uint64_t>(count);
    swap(wrap(rank() + distance), {equal(Buffer::scratch, size()).place, length}, wrap(rank() - distance),
         {equal(Buffer::scratch, 2 * size()).place, length});
    count = 0;
    for (int i = 0; i < size(); ++i)
      if ((i & distance) != 0)
        copy(equal(Buffer::scratch, 2 * size() + count++).place, equal(Buffer::scratch, i).place, bytes());
  }
  for (int i = 0; i < size(); ++i)
    copy(equal(Buffer::scratch, i).place, equal(Buffer::output, wrap(rank() - i)).place, bytes());
}

void ScheduleWriter::all_to_allv() {
  const auto block = [this](Buffer buffer, const Blocks& blocks, int peer) {
    const auto at = static_cast<std::size_t>(peer);
    return Block{{buffer, blocks.offsets[at] * shape_.element_bytes}, blocks.counts[at] * shape_.element_bytes};
  };
  const auto out = [&](int peer) { return block(Buffer::input, shape_.send, peer); };
  const auto in = [&](int peer) { return block(Buffer::output, shape_.receive, peer); };
  keep(out(rank()).place, in(rank()).place, out(rank()).bytes);
  if (size() == 1) return;
  std::uint64_t most = 1;
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) most = std::max({most, pieces(out(peer).bytes), pieces(in(peer).bytes)});
  ahead(
      most,
      [&](std::uint64_t i) {
        for (int k = 1; k < size(); ++k) send(wrap(rank() + k), out(wrap(rank() + k)), i);
      },
      [&](std::uint64_t i) {
        for (int k = 1; k < size(); ++k) land(wrap(rank() - k), in(wrap(rank() - k)), i);
      });
}

}  // namespace fairway::collectives
