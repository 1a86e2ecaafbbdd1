// Schedules of the collectives that move and combine nothing.
#include "collectives/host/schedule_writer.h"

namespace fairway::collectives {

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
