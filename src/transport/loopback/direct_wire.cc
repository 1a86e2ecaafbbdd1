#include "transport/loopback/direct_wire.h"

#include <cstring>

#include "transport/command.h"
#include "transport/loopback/loopback.h"

namespace fairway::transport::loopback {

DirectPort::DirectPort(std::shared_ptr<Pipe> pipe, unsigned side, RegionTable& regions)
    : pipe_(std::move(pipe)), side_(side), regions_(regions), out_(pipe_->lanes[side]), in_(pipe_->lanes[1 - side]) {
  free_.reserve(kQueueDepth);
  early_.reserve(kQueueDepth);
  for (std::uint32_t i = kQueueDepth; i > 0; --i) free_.push_back(i - 1);
}

std::size_t DirectPort::post(std::span<const Command> commands) {
  if (state_ != State::up || pipe_->broken.load(std::memory_order_acquire)) return 0;
  std::size_t taken = 0;
  for (const Command& command : commands) {
    if (free_.empty()) break;
    const std::uint32_t index = free_.back();
    Flight& flight = out_.flights[index];
    flight.command = command;
    if (command.refusal == ErrorCode::ok && command.slice.op == Op::message && !place_message(flight)) break;
    free_.pop_back();
    flight.hold.store(Hold::waiting, std::memory_order_relaxed);
    flight.give_up.store(false, std::memory_order_relaxed);
    flight.cursor = {};
    flight.touched = false;
    flight.result = command.refusal;
    flight.in_use = true;
    flight.reported = false;
    flight.returned = command.refusal != ErrorCode::ok;
    if (flight.returned) {
      flight.hold.store(Hold::cancelled, std::memory_order_relaxed);
      early_.push_back(index);
    } else {
      out_.submitted.push(index);  // releases the flight to the target
    }
    ++taken;
  }
  return taken;
}

// Under the same rule as shm's touch: who ends an epoch or a region does that, then looks at the word; this side sets
// the word, then looks whether they have ended. An immediate is told by the target's thread.
AtOnce DirectPort::move_now(const SmallMove& move, RegionId region) {
  if (move.op == Op::write_immediate) return AtOnce::never;
  if (state_ != State::up || (side_ == 0 && !pipe_->attached.load(std::memory_order_acquire))) return AtOnce::later;
  std::atomic<std::uint64_t>& word = pipe_->touching[side_];
  const std::uint64_t touch = word.load(std::memory_order_relaxed) + 1;
  word.store(touch, std::memory_order_seq_cst);
  RegionTable::Resolved at;
  const bool moves = !pipe_->broken.load(std::memory_order_seq_cst) &&
                     pipe_->regions[1 - side_]->resolve_for_cpu(region, move.remote_offset, move.length,
                                                                needed_access(move.op), at) == ErrorCode::ok;
  if (moves && move.length != 0 && move.op == Op::read) std::memmove(move.local, at.address, move.length);
  if (moves && move.length != 0 && move.op == Op::write) std::memmove(at.address, move.local, move.length);
  word.store(touch + 1, std::memory_order_release);
  return moves ? AtOnce::done : AtOnce::later;
}

// Copies the message, so that the caller may reuse its bytes. False: the arena is full for now.
bool DirectPort::place_message(Flight& flight) {
  if (!out_.arena) out_.arena = std::make_unique<std::byte[]>(kArenaBytes);
  const Slice& slice = flight.command.slice;
  const auto length = static_cast<std::uint32_t>(slice.length);
  std::uint32_t begin = arena_tail_;
  if (begin % kArenaBytes + length > kArenaBytes) begin += kArenaBytes - begin % kArenaBytes;  // no wrap in a message
  if (begin + length - out_.arena_head.load(std::memory_order_acquire) > kArenaBytes) return false;
  if (length != 0) std::memcpy(out_.arena.get() + begin % kArenaBytes, slice.local, length);
  flight.arena_begin = begin;
  flight.arena_end = arena_tail_ = begin + length;
  return true;
}

std::size_t DirectPort::poll(std::span<Event> events, Time, std::uint64_t& budget) {
  if (arena_held_) {
    in_.arena_head.store(arena_due_, std::memory_order_release);
    arena_held_ = false;
    ring();  // the peer may wait for room
  }
  std::size_t stored = 0;
  if (state_ == State::fencing) return finish_fence(events, stored);
  if (state_ != State::up) return 0;
  collect(events, stored);
  if (pipe_->broken.load(std::memory_order_acquire)) {
    collect(events, stored);
    if (stored == events.size()) return stored;
    state_ = State::down;
    Event& event = events[stored++] = {};
    event.kind = EventKind::link_down;
    event.status = Status(ErrorCode::link_failed, "loopback: the peer closed the link, or a test cut it");
    return stored;
  }
  serve(events, stored, budget);
  return stored;
}

bool DirectPort::idle() const {
  if (state_ == State::fencing || arena_held_) return false;
  if (state_ != State::up) return true;
  return early_.empty() && !serving_ && out_.completed.empty() && in_.submitted.empty() &&
         !pipe_->broken.load(std::memory_order_acquire);
}

// Events of slices that ended: first refused and cancelled ones, then those that the target finished.
void DirectPort::collect(std::span<Event> events, std::size_t& stored) {
  while (stored < events.size() && !early_.empty()) {
    const std::uint32_t index = early_.back();
    early_.pop_back();
    report(out_.flights[index], events[stored++]);
    recycle(index);
  }
  while (stored < events.size()) {
    const std::uint32_t* front = out_.completed.front();
    if (!front) return;
    const std::uint32_t index = *front;
    out_.completed.pop();
    Flight& flight = out_.flights[index];
    flight.returned = true;
    if (!flight.reported && flight.hold.load(std::memory_order_acquire) == Hold::finished)
      report(flight, events[stored++]);
    recycle(index);
  }
}

void DirectPort::report(Flight& flight, Event& event) {
  event = {};
  event.token = flight.command.slice.token;
  flight.reported = true;
  if (flight.result == ErrorCode::ok) {
    event.kind = EventKind::done;
    event.value = flight.old_value;
  } else {
    event.kind = EventKind::failed;
    event.status = Status(flight.result, describe_failure(flight.result))
                       .with_effect(flight.touched ? Effect::partial : Effect::not_applied);
  }
}

// A flight is free again once its event was delivered and the target is done with it.
void DirectPort::recycle(std::uint32_t index) {
  Flight& flight = out_.flights[index];
  if (!flight.reported || !flight.returned) return;
  flight.in_use = false;
  free_.push_back(index);
}

void DirectPort::end_early(Flight& flight) {
  if (!flight.in_use || flight.reported) return;
  Hold waiting = Hold::waiting;
  if (flight.hold.compare_exchange_strong(waiting, Hold::cancelled, std::memory_order_seq_cst)) {
    flight.result = state_ == State::up ? ErrorCode::cancelled : ErrorCode::link_failed;
    early_.push_back(static_cast<std::uint32_t>(&flight - out_.flights.data()));
  } else if (waiting == Hold::copying) {
    flight.give_up.store(true, std::memory_order_seq_cst);
  }
}

void DirectPort::cancel(SliceToken token) {
  for (Flight& flight : out_.flights)
    if (flight.in_use && flight.command.slice.token == token) end_early(flight);
}

void DirectPort::cancel_memory(std::uint64_t local_handle) {
  for (Flight& flight : out_.flights)
    if (flight.in_use && flight.command.slice.local_handle == local_handle) end_early(flight);
}

bool DirectPort::uses(std::uint64_t local_handle) const {
  for (const Flight& flight : out_.flights)
    if (flight.in_use && !flight.reported && flight.command.slice.local_handle == local_handle) return true;
  return false;
}

void DirectPort::fence() {
  if (state_ == State::fencing || state_ == State::fenced) return;
  state_ = State::fencing;
  pipe_->broken.store(true, std::memory_order_seq_cst);
  last_touch_ = touched();
  ring();
}

void DirectPort::cut() {
  pipe_->broken.store(true, std::memory_order_seq_cst);
  ring();
}

// The rings no longer matter: the `hold` of each flight without an event decides it. If the peer's thread is copying a
// piece right now, the next poll() looks again; close() waits for it instead.
std::size_t DirectPort::finish_fence(std::span<Event> events, std::size_t stored) {
  collect(events, stored);
  bool busy = false;
  for (Flight& flight : out_.flights) {
    if (!flight.in_use || flight.reported) continue;
    if (flight.hold.load(std::memory_order_acquire) == Hold::waiting) end_early(flight);
    const Hold hold = flight.hold.load(std::memory_order_acquire);
    if (hold == Hold::copying) end_early(flight);
    if (hold == Hold::finished && stored < events.size())
      report(flight, events[stored++]);
    else if (hold != Hold::cancelled)
      busy = true;
  }
  collect(events, stored);
  if (busy || is_touched() || !early_.empty() || stored == events.size()) return stored;
  state_ = State::fenced;
  Event& event = events[stored++] = {};
  event.kind = EventKind::fenced;
  event.value = immediates_;
  return stored;
}

void DirectPort::close() {
  fence();
  while (is_touched()) {  // less than a microsecond, unless its thread has lost its core
  }
  for (Flight& flight : out_.flights) {
    if (!flight.in_use || flight.reported) continue;
    end_early(flight);
    // Waits for one piece at most: the target notifies once it sees give_up (both are sequentially consistent).
    while (flight.hold.load(std::memory_order_seq_cst) == Hold::copying)
      flight.hold.wait(Hold::copying, std::memory_order_seq_cst);
    end_early(flight);
  }
}

void DirectPort::settle(Flight& flight, Hold to) {
  flight.hold.store(to, std::memory_order_seq_cst);
  if (flight.give_up.load(std::memory_order_seq_cst)) flight.hold.notify_all();
}

void DirectPort::serve(std::span<Event> events, std::size_t& stored, std::uint64_t& budget) {
  bool completed = false;
  while (budget > 0 && stored < events.size()) {  // a flight may need one event here
    if (!serving_ && !in_.submitted.pop(current_)) break;
    serving_ = true;
    Flight& flight = in_.flights[current_];
    Hold waiting = Hold::waiting;
    if (flight.hold.compare_exchange_strong(waiting, Hold::copying, std::memory_order_acq_rel)) {
      const Slice& slice = flight.command.slice;
      advance(flight, budget);
      if (flight.result == ErrorCode::ok && !flight.cursor.done(slice)) {
        settle(flight, Hold::waiting);
        continue;
      }
      if (flight.result == ErrorCode::ok && (slice.op == Op::message || slice.op == Op::write_immediate)) {
        Event& event = events[stored++] = {};
        event.kind = slice.op == Op::message ? EventKind::message : EventKind::immediate;
        event.value = slice.immediate;
        if (slice.op == Op::message)
          event.bytes = {in_.arena.get() + flight.arena_begin % kArenaBytes, static_cast<std::size_t>(slice.length)};
        else
          ++immediates_;
      }
      if (slice.op == Op::message) {
        arena_due_ = flight.arena_end;
        arena_held_ = true;
      }
      const bool gap = slice.op == Op::write_immediate && flight.result != ErrorCode::ok;
      settle(flight, Hold::finished);
      if (gap) {  // no later one may arrive
        cut();
        completed = in_.completed.push(current_) || completed;
        serving_ = false;
        break;
      }
    } else if (flight.command.slice.op == Op::message) {  // cancelled: frees its bytes at the next poll
      arena_due_ = flight.arena_end;
      arena_held_ = true;
    }
    serving_ = false;
    completed = in_.completed.push(current_) || completed;
  }
  if (completed) ring();
}

void DirectPort::advance(Flight& flight, std::uint64_t& budget) {
  const Slice& slice = flight.command.slice;
  constexpr std::uint64_t kPerFrame = 256;  // fixed cost of a frame, in bytes
  if (flight.give_up.load(std::memory_order_relaxed)) {
    flight.result = ErrorCode::cancelled;
    return;
  }
  if (slice.op == Op::message || slice.op == Op::fetch_add || slice.op == Op::compare_swap) {
    if (slice.op != Op::message) flight.result = execute_atomic(flight);
    flight.cursor.block = slice.count;
    budget -= std::min(budget, kPerFrame + slice.length);
    return;
  }
  for (std::uint64_t piece_budget = std::min(budget, kPieceBytes); piece_budget > 0 && !flight.cursor.done(slice);) {
    Piece piece;
    flight.result = flight.cursor.next(flight.command, piece_budget, piece);
    if (flight.result == ErrorCode::ok) flight.result = copy_piece(flight.command, piece, regions_);
    if (flight.result != ErrorCode::ok) return;
    flight.touched |= piece.length != 0;
    const std::uint64_t cost = std::min(piece_budget, kPerFrame + piece.length);
    piece_budget -= cost;
    budget -= cost;
  }
}

ErrorCode DirectPort::execute_atomic(Flight& flight) {
  const Slice& slice = flight.command.slice;
  RegionTable::Resolved at;
  const ErrorCode code = regions_.resolve_for_cpu(flight.command.region, slice.remote_offset, 8, Access::atomic, at);
  if (code != ErrorCode::ok) return code;
  if (reinterpret_cast<std::uintptr_t>(at.address) % 8 != 0) return ErrorCode::invalid_argument;
  flight.old_value = apply_atomic(slice.op, at.address, slice.operand, slice.expected);
  flight.touched = true;
  return ErrorCode::ok;
}

DirectWire::DirectWire(std::vector<Device> devices) : devices_(std::move(devices)) {}

Device DirectWire::default_device() {
  Device device;
  device.name = "loopback";
  Capabilities& can = device.capabilities;
  can.operations = bits(Op::write, Op::read, Op::message, Op::fetch_add, Op::compare_swap, Op::write_immediate);
  can.shapes = bits(Shape::contiguous, Shape::strided, Shape::indexed);
  can.queue_depth = kQueueDepth;
  can.ordered = true;
  can.visible_when_done = true;
  return device;
}

std::unique_ptr<Port> DirectWire::offer(std::uint64_t id, End end) {
  auto pipe = std::make_shared<Pipe>(next_name_.fetch_add(1, std::memory_order_relaxed), std::move(end.doorbell));
  pipe->regions[0] = &end.regions;
  offers_.add(id, pipe);
  return std::make_unique<DirectPort>(std::move(pipe), 0, end.regions);
}

std::unique_ptr<Port> DirectWire::attach(std::uint64_t id, End end) {
  auto pipe = offers_.find(id);
  if (!pipe || pipe->taken.exchange(true, std::memory_order_relaxed)) return nullptr;
  pipe->bells[1] = std::move(end.doorbell);
  pipe->regions[1] = &end.regions;
  pipe->attached.store(true, std::memory_order_release);
  return std::make_unique<DirectPort>(std::move(pipe), 1, end.regions);
}

bool DirectWire::cut(std::uint64_t name) {
  const auto found = offers_.find_if([name](const Pipe& pipe) { return pipe.name == name; });
  if (!found) return false;
  found->broken.store(true, std::memory_order_seq_cst);
  found->ring(0);
  found->ring(1);
  return true;
}

}  // namespace fairway::transport::loopback

namespace fairway {

std::shared_ptr<Loopback> make_loopback() {
  return std::make_shared<Loopback>(std::make_unique<transport::loopback::DirectWire>());
}

}  // namespace fairway
