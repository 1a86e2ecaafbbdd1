#include "collectives/host/schedule.h"

#include <numeric>

#include "collectives/host/schedule_writer.h"

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

}  // namespace fairway::collectives
