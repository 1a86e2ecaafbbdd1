#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>

#include "sim/fabric.h"
#include "transport/command.h"

// The course of a slice's bytes between post() and its event, and of its frames after that.
//
//   write, message, atomic:  depart (the source is read) -> land (the target is written) ... all landed -> acknowledge
//   read:                    depart (a request) -> serve_read (the target is read) -> land_read (the source is written)
//
// Each handler handles one frame of one piece; `frames` counts the frames in flight. fabric.cc has what follows the
// last frame.
namespace fairway::sim {

using transport::BlockCursor;
using transport::Op;
using transport::Piece;
using transport::RegionTable;
using transport::loopback::Command;

namespace {
bool is_atomic(Op op) {
  return op == Op::fetch_add || op == Op::compare_swap;
}
}  // namespace

void Fabric::launch(SimLink& link, unsigned side, const Command& command) {
  if (free_flights_.empty()) {
    flights_.push_back(std::make_unique<Flight>());
    free_flights_.push_back(flights_.back().get());
  }
  Flight& flight = *free_flights_.back();
  free_flights_.pop_back();
  auto payload = std::move(flight.payload);
  auto parts = std::move(flight.parts);
  flight = {};
  flight.payload = std::move(payload);
  flight.parts = std::move(parts);
  flight.parts.clear();
  flight.link = &link;
  flight.side = side;
  flight.command = command;
  LinkEnd& end = link.ends[side];
  end.flights.push_back(&flight);
  ++end.in_flight;
  if (command.refusal != ErrorCode::ok) {
    flight.result = command.refusal;
    return end_flight(flight, command.refusal);
  }
  const transport::Slice& slice = command.slice;
  flight.total = is_atomic(slice.op) ? 0 : slice.length * slice.count;
  flight.payload.resize(flight.total);
  if (slice.op == Op::message && flight.total != 0) std::memcpy(flight.payload.data(), slice.local, flight.total);
  if (slice.op == Op::message || slice.op == Op::write_immediate) flight.turn = end.next_turn++;
  simulation_.note(end.host->index(), [&] {
    return "posts op " + std::to_string(static_cast<unsigned>(slice.op)) + " of " + std::to_string(flight.total) +
           " bytes, token " + std::to_string(slice.token) + ", on link " + std::to_string(link.name);
  });

  Nic& nic = *nics_[end.nic];
  Time& busy = nic.busy_until[end.device];
  const std::uint64_t rate = rate_of(end);
  busy = std::max(busy, simulation_.now());
  Traffic& sent = nic.sent;
  ++(slice.op == Op::message ? sent.records : flight.total == 0 ? sent.counts : sent.messages);
  sent.bytes += slice.op == Op::message ? 0 : flight.total;
  if (nic.natures[end.device].steady) {
    if (carried_ != nullptr && slice.op != Op::message && flight.total != 0) {
      carried_->push_back({end.host, link.ends[1 - side].host, flight.total, busy});
      flight.carried = carried_->size();
    }
    const Time first = busy + nic.natures[end.device].latency_min;  // its first byte arrives
    busy += slice.op == Op::read ? nic.natures[end.device].message_time : time_of(flight);
    flight.pieces = 1;
    ++flight.frames;
    simulation_.at(busy, &Fabric::depart, &flight, 0, flight.total);
    if (slice.op == Op::read) return;
    ++flight.frames;
    return simulation_.at(first, &Fabric::begin_to_arrive, &flight, 0, flight.total);
  }
  const std::uint64_t most = slice.op == Op::message || flight.total < 2 ? 1 : std::min<std::uint64_t>(flight.total, 3);
  const std::uint64_t count = simulation_.random().between(1, most);
  std::uint64_t begin = 0;
  for (std::uint64_t piece = 0; piece < count; ++piece) {
    const std::uint64_t most_here = flight.total - begin - (count - piece - 1);  // so that no later piece is empty
    const std::uint64_t stop = piece + 1 == count ? flight.total : begin + simulation_.random().between(1, most_here);
    if (slice.op != Op::read) busy += (stop - begin) * kSecond / rate;  // what is read leaves the other NIC
    launch_piece(flight, piece, begin, stop, busy);
    begin = stop;
  }
}

void Fabric::launch_piece(Flight& flight, std::uint64_t piece, std::uint64_t begin, std::uint64_t end, Time when) {
  flight.pieces |= std::uint64_t{1} << piece;
  ++flight.frames;
  simulation_.at(when + simulation_.random().below(kMicrosecond), &Fabric::depart, &flight,
                 piece << kPieceShift | begin, end);
}

Time Fabric::time_of(const Flight& flight) const {
  const LinkEnd& end = flight.link->ends[flight.side];
  const Nic& nic = *nics_[end.nic];
  const bool record = flight.command.slice.op == Op::message;
  return (record ? 0 : nic.natures[end.device].message_time) +
         flight.total * kSecond / nic.devices[end.device].bytes_per_second;
}

// A steady NIC takes what arrives one after the other, in the order of first bytes: a short message that left its NIC
// first, and whose first byte comes later, waits for a long one that has begun to arrive.
void Fabric::begin_to_arrive(void* object, std::uint64_t a, std::uint64_t end) {
  Flight& flight = *static_cast<Flight*>(object);
  Fabric& fabric = *flight.link->fabric;
  const LinkEnd& to = flight.link->ends[1 - flight.side];
  if (to.host != nullptr) {
    Time& until = fabric.nics_[to.nic]->receives_until[to.device];
    until = std::max(until, fabric.simulation_.now()) + fabric.time_of(flight);
    flight.arrives = until;
    if (fabric.carried_ != nullptr && flight.carried != 0) (*fabric.carried_)[flight.carried - 1].arrives = until;
    if (flight.left) fabric.send_steadily(flight, a, end);
  }
  fabric.drop(flight);
}

// Once all has left, and has begun to arrive.
void Fabric::send_steadily(Flight& flight, std::uint64_t a, std::uint64_t end) {
  if (flight.arrives == 0) return;
  ++flight.frames;
  simulation_.at(flight.arrives, &Fabric::land, &flight, a, end);
}

Time Fabric::latency(const Flight& flight) {
  const NicBehavior& how = nature(*flight.link, flight.side);
  if (how.steady) return how.latency_min;
  return simulation_.random().between(how.latency_min, how.latency_max);
}

// It waits for what the path, and the NIC that it goes to, have to take before it: many that send to one share its
// rate.
void Fabric::send(Flight& flight, unsigned toward, Time leaves, std::uint64_t bytes, Simulation::Handler handler,
                  std::uint64_t a, std::uint64_t b) {
  ++flight.frames;
  const LinkEnd &from = flight.link->ends[1 - toward], &to = flight.link->ends[toward];
  Time at = leaves;
  if (from.host != nullptr && to.host != nullptr) {
    if (Path* const path = simulation_.changed_path(from.host->index(), to.host->index()))
      at = path->through(leaves, bytes);
    Nic& nic = *nics_[to.nic];
    if (!nic.natures[to.device].steady && bytes != 0) {
      Time& until = nic.receives_until[to.device];
      until = std::max(until, leaves) + bytes * kSecond / rate_of(to);
      at = std::max(at, until);
    }
  }
  simulation_.at(at + latency(flight), handler, &flight, a, b);
}

// A frame ended. The last one frees the flight, if its event is decided.
void Fabric::drop(Flight& flight) {
  if (--flight.frames == 0 && flight.ended && !flight.waits_turn) free_flights_.push_back(&flight);
}

// Whether a frame passes toward that side. If not, it was dropped or is scheduled again.
bool Fabric::may_pass(Flight& flight, unsigned toward, Simulation::Handler again, std::uint64_t a, std::uint64_t b) {
  SimLink& link = *flight.link;
  LinkEnd& to = link.ends[toward];
  if (!to.host || !to.open || to.host->dead()) {
    if (link.broken && to.fenced) ++late_stopped_;
    if (!link.broken) break_link(link);  // retries are exhausted
    return false;
  }
  Random& random = simulation_.random();
  if (simulation_.blocked(link.ends[1 - toward].host->index(), to.host->index())) {
    if (random.chance(100)) break_link(link);
    ++flight.frames;
    simulation_.in(random.between(kMillisecond, 5 * kMillisecond), again, &flight, a, b);
    return false;
  }
  if (!link.broken) return true;
  // The epoch is over, but its frames are still in flight. Only a fence stops them.
  const std::uint64_t fate = random.below(10);
  if (fate < 3) return false;
  if (fate < 6) {
    ++flight.frames;
    simulation_.in(random.below(nature(link, flight.side).late), again, &flight, a, b);
    return false;
  }
  if (to.fenced) {
    ++late_stopped_;
    simulation_.note(to.host->index(), [&] { return "late frame of link " + std::to_string(link.name) + " stopped"; });
    return false;
  }
  ++late_landed_;
  simulation_.note(to.host->index(), [&] { return "late frame of link " + std::to_string(link.name) + " lands"; });
  return true;
}

// Walks a byte range on the local side; reads the bytes (copy_out) and notes where they go.
ErrorCode Fabric::gather(Flight& flight, std::uint64_t begin, std::uint64_t end, bool copy_out) {
  const transport::Slice& slice = flight.command.slice;
  BlockCursor cursor;
  if (slice.length != 0) {
    cursor.block = static_cast<std::uint32_t>(begin / slice.length);
    cursor.offset = begin % slice.length;
  }
  std::erase_if(flight.parts, [&](const Flight::Part& part) { return part.at >= begin && part.at < end; });
  do {
    Piece piece;
    const ErrorCode code = cursor.next(flight.command, end - begin, piece);
    if (code != ErrorCode::ok) return code;
    if (copy_out && piece.length != 0) {
      std::memcpy(flight.payload.data() + begin, piece.local, piece.length);
      garble(flight, piece.local, std::span(flight.payload).subspan(begin, piece.length));
    }
    flight.parts.push_back({piece.remote_block, piece.offset, piece.length, begin});
    begin += piece.length;
  } while (begin < end);
  return ErrorCode::ok;
}

void Fabric::depart(void* object, std::uint64_t a, std::uint64_t end) {
  Flight& flight = *static_cast<Flight*>(object);
  Fabric& fabric = *flight.link->fabric;
  if (fabric.holds(flight, flight.side, &Fabric::depart, a, end)) return;
  const std::uint64_t begin = a & ((std::uint64_t{1} << kPieceShift) - 1);
  const Op op = flight.command.slice.op;
  LinkEnd& from = flight.link->ends[flight.side];
  Random& random = fabric.simulation_.random();
  // The NIC of a dead process reads nothing more; that of a broken link may, until it is fenced.
  const bool idle = flight.ended || from.fenced || from.host->dead() || flight.settled;
  if (idle || (flight.link->broken && random.chance(500))) {
    // A flight that gave up alone lets later ones pass; one that was lost with its link ends the ordered arrivals.
    if (!flight.settled && !flight.link->broken) fabric.skip_turn(flight);
    return fabric.drop(flight);
  }
  if (op != Op::message && !is_atomic(op)) {
    const ErrorCode code = fabric.gather(flight, begin, end, op != Op::read);
    if (code != ErrorCode::ok) {
      fabric.refuse(flight, code);
      return fabric.drop(flight);
    }
  }
  flight.left = true;
  const NicBehavior& how = fabric.nature(*flight.link, flight.side);
  const bool lost = how.lose_per_mille != 0 && random.chance(how.lose_per_mille);
  if (lost) {
    if (random.chance(how.give_up_per_mille)) fabric.break_link(*flight.link);
    ++flight.frames;
    fabric.simulation_.in(how.retransmit, &Fabric::depart, &flight, a, end);
  }
  if (how.steady && op != Op::read) {
    fabric.send_steadily(flight, a, end);
    return fabric.drop(flight);
  }
  // In half of the losses the frame arrived and only its acknowledgement was lost: it lands twice.
  if (!lost || random.chance(500))
    fabric.send(flight, 1 - flight.side, fabric.simulation_.now(), op == Op::read ? 0 : end - begin,
                op == Op::read ? &Fabric::serve_read : &Fabric::land, a, end);
  fabric.drop(flight);
}

// Copies a range between the payload and the target's memory, part by part, with access checks.
ErrorCode Fabric::apply(Flight& flight, std::uint64_t begin, std::uint64_t end, bool is_read) {
  const RegionTable& regions = *flight.link->ends[1 - flight.side].regions;
  const transport::Slice& slice = flight.command.slice;
  Nic& nic = *nics_[flight.link->ends[1 - flight.side].nic];
  if (is_read || !only_delivers(flight)) nic.posted.flush();  // nothing overtakes posted writes
  if (nic.posted.empty() && !is_read && only_delivers(flight))
    simulation_.in(simulation_.random().below(2 * kMillisecond), &Fabric::show_posted, &nic, 0, 0);
  for (const Flight::Part& part : flight.parts) {
    if (part.at < begin || part.at >= std::max(end, begin + 1)) continue;
    RegionTable::Resolved at;
    const ErrorCode code =
        regions.resolve(flight.command.region, part.block, slice.length, transport::needed_access(slice.op), at);
    if (code != ErrorCode::ok) return code;
    if (part.length == 0) continue;
    if (is_read)
      std::memcpy(flight.payload.data() + part.at, at.address + part.offset, part.length);
    else if (only_delivers(flight))
      nic.posted.post(regions, flight.command.region, part.block + part.offset,
                      std::span(flight.payload).subspan(part.at, part.length));
    else
      std::memcpy(at.address + part.offset, flight.payload.data() + part.at, part.length);
  }
  return ErrorCode::ok;
}

// Whether the initiator's device completes writes when they are delivered, and not yet visible.
bool Fabric::only_delivers(const Flight& flight) const {
  const LinkEnd& end = flight.link->ends[flight.side];
  return !nics_[end.nic]->devices[end.device].capabilities.visible_when_done;
}

void Fabric::show_posted(void* nic, std::uint64_t, std::uint64_t) {
  static_cast<Nic*>(nic)->posted.flush();
}

ErrorCode Fabric::execute_atomic(Flight& flight) {
  const transport::Slice& slice = flight.command.slice;
  RegionTable::Resolved at;
  const ErrorCode code = flight.link->ends[1 - flight.side].regions->resolve(flight.command.region, slice.remote_offset,
                                                                             8, Access::atomic, at);
  nics_[flight.link->ends[1 - flight.side].nic]->posted.flush();
  if (code != ErrorCode::ok) return code;
  if (reinterpret_cast<std::uintptr_t>(at.address) % 8 != 0) return ErrorCode::invalid_argument;
  flight.old_value = transport::apply_atomic(slice.op, at.address, slice.operand, slice.expected);
  return ErrorCode::ok;
}

void Fabric::land(void* object, std::uint64_t a, std::uint64_t end) {
  Flight& flight = *static_cast<Flight*>(object);
  Fabric& fabric = *flight.link->fabric;
  if (fabric.holds(flight, 1 - flight.side, &Fabric::land, a, end)) return;
  const std::uint64_t begin = a & ((std::uint64_t{1} << kPieceShift) - 1);
  const Op op = flight.command.slice.op;
  // A frame of a settled flight is a duplicate packet, which the target's NIC recognizes by its sequence number.
  if (flight.settled || !fabric.may_pass(flight, 1 - flight.side, &Fabric::land, a, end)) return fabric.drop(flight);
  if (flight.link->ends[1 - flight.side].fenced) return fabric.drop(flight);
  ErrorCode code = ErrorCode::ok;
  if (is_atomic(op))
    code = fabric.execute_atomic(flight);
  else if (op != Op::message)
    code = fabric.apply(flight, begin, end, false);
  if (code != ErrorCode::ok) {
    fabric.refuse(flight, code);
  } else {
    flight.landed |= std::uint64_t{1} << (a >> kPieceShift);
    if (flight.landed == flight.pieces) fabric.arrived(flight);
  }
  fabric.drop(flight);
}

void Fabric::serve_read(void* object, std::uint64_t a, std::uint64_t end) {
  Flight& flight = *static_cast<Flight*>(object);
  Fabric& fabric = *flight.link->fabric;
  if (fabric.holds(flight, 1 - flight.side, &Fabric::serve_read, a, end)) return;
  const std::uint64_t begin = a & ((std::uint64_t{1} << kPieceShift) - 1);
  if (flight.settled || !fabric.may_pass(flight, 1 - flight.side, &Fabric::serve_read, a, end))
    return fabric.drop(flight);
  if (flight.link->ends[1 - flight.side].fenced) return fabric.drop(flight);
  const ErrorCode code = fabric.apply(flight, begin, end, true);
  if (code != ErrorCode::ok)
    fabric.refuse(flight, code);
  else
    fabric.send(flight, flight.side, fabric.leaves_target(flight, end - begin), end - begin, &Fabric::land_read, a,
                end);
  fabric.drop(flight);
}

void Fabric::land_read(void* object, std::uint64_t a, std::uint64_t end) {
  Flight& flight = *static_cast<Flight*>(object);
  Fabric& fabric = *flight.link->fabric;
  if (fabric.holds(flight, flight.side, &Fabric::land_read, a, end)) return;
  const std::uint64_t begin = a & ((std::uint64_t{1} << kPieceShift) - 1);
  if (flight.settled || flight.ended || !fabric.may_pass(flight, flight.side, &Fabric::land_read, a, end) ||
      flight.link->ends[flight.side].fenced)
    return fabric.drop(flight);
  for (const Flight::Part& part : flight.parts) {
    if (part.at < begin || part.at >= end || part.length == 0) continue;
    BlockCursor cursor{static_cast<std::uint32_t>(part.at / flight.command.slice.length),
                       part.at % flight.command.slice.length};
    Piece piece;
    if (cursor.next(flight.command, part.length, piece) != ErrorCode::ok) continue;
    std::memcpy(piece.local, flight.payload.data() + part.at, part.length);
    fabric.garble(flight, piece.local, std::span(piece.local, part.length));
  }
  flight.landed |= std::uint64_t{1} << (a >> kPieceShift);
  if (flight.landed == flight.pieces) {
    flight.settled = true;
    fabric.answer(flight);
  }
  fabric.drop(flight);
}

void Fabric::refuse(Flight& flight, ErrorCode code) {
  flight.settled = true;
  flight.result = code;
  if (flight.command.slice.op == Op::write_immediate)
    break_link(*flight.link);  // none after it arrives
  else
    skip_turn(flight);
  answer(flight);
}

}  // namespace fairway::sim
