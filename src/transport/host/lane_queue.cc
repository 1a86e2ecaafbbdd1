#include <algorithm>
#include <cstring>

#include "transport/host/lane.h"
#include "transport/host/transport.h"

// Slices that a device copies. Copies are queued during a touch and counted in shared memory before they are queued and
// after they end, so the owner of the memory knows what may still arrive.
namespace fairway::transport::host {
namespace {

constexpr std::size_t kFirstCopies = 512;  // a small first batch, so that the device starts early
constexpr std::size_t kMaxBatches = 256;

}  // namespace

// Queues the next batch of the flight, unless enough for a few milliseconds is queued already. Small slices are not
// held back: they are few, and the device may have another way for them.
ErrorCode Lane::queue_copies(Flight& flight, const Remote& remote, bool urgent) {
  const Slice& slice = flight.command.slice;
  Region region;  // resolved once: its owner waits for copies queued in this touch
  if (!pair_->regions.read(flight.command.region, region)) return ErrorCode::revoked;
  if (!includes(region.access, needed_access(slice.op))) return ErrorCode::access_denied;
  const bool imported = remote.method == Method::device, mapped = remote.method == Method::mapped;
  if (mover_ == nullptr || (!imported && !mapped && (remote.method != Method::cma || !pair_->no_cma.empty()))) {
    why_ = "neither the GPU nor the kernel can access the peer's memory" +
           (pair_->no_cma.empty() ? std::string() : ": " + pair_->no_cma);
    return ErrorCode::system_error;
  }
  Mover::Path path;
  switch (mover_->path(region_of(slice.local_handle), imported ? remote.file->imported.get() : nullptr,
                       {slice.length * slice.count, slice.op == Op::read, slice.count}, path, why_)) {
    case Mover::Readiness::ready: break;
    case Mover::Readiness::opening: return ErrorCode::ok;
    case Mover::Readiness::refused: return ErrorCode::system_error;
  }
  const bool is_full = batches_.size() >= kMaxBatches || (queued_bytes_ > 0 && queued_bytes_ >= path.most_queued);
  if (is_full && !urgent) return ErrorCode::ok;
  if (!imported && !mapped) return stage_copies(flight, path, region, urgent);
  if (mapped) {
    if (!remote.file->held) remote.file->held = mover_->hold(remote.file->map);
    path.base = remote.file->map->address();
    path.size = remote.file->map->size_bytes();
    path.kernels = path.kernels && remote.file->held->pinned.load(std::memory_order_acquire);
  }
  std::span<Mover::Copy> list = mover_->list(path);
  if (batches_.empty()) list = list.first(std::min(list.size(), kFirstCopies));
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  const std::uint64_t part = mover_->part(path, slice.length, slice.count);
  const ErrorCode code = slice.shape == Shape::indexed && part >= slice.length && slice.length != 0
                             ? list_pages(flight, remote, path, region.size_bytes, list, count, bytes)
                             : list_parts(flight, remote, path, region.size_bytes, part, list, count, bytes);
  if (code != ErrorCode::ok) return code;
  if (count == 0) return ErrorCode::ok;
  Batch batch;
  batch.file = remote.file;
  const Status started = start(flight, batch, path, list.first(count), bytes, urgent);
  return started.code();
}

// For peer memory that only the kernel reaches: the device copies to or from a pinned stage, and cross-memory attach
// between the stage and the peer.
ErrorCode Lane::stage_copies(Flight& flight, const Mover::Path& path, const Region& region, bool urgent) {
  const Slice& slice = flight.command.slice;
  if (slice.op == Op::read && slice.start_after != nullptr) {
    why_ = "the peer's memory is read by the kernel, which cannot wait for a stream: use memory from allocate()";
    return ErrorCode::system_error;
  }
  Batch batch;
  batch.path = path;
  batch.stage = mover_->take_stage(path);
  if (batch.stage == nullptr) return ErrorCode::ok;
  Piece piece;
  ErrorCode code = flight.cursor.next(flight.command, Mover::kStageBytes, piece);
  if (code == ErrorCode::ok &&
      (piece.remote_block > region.size_bytes || slice.length > region.size_bytes - piece.remote_block))
    code = ErrorCode::out_of_range;
  batch.there = piece.remote_block + piece.offset;
  if (code == ErrorCode::ok && slice.op == Op::read && piece.length != 0) {
    code = copy_by_cma(region.address + batch.there, batch.stage, piece.length, true);
    flight.touched = true;
  }
  if (code != ErrorCode::ok || piece.length == 0) {
    mover_->give_stage(path, batch.stage);
    return code;
  }
  const std::span<Mover::Copy> list = mover_->list(path);
  list[0] = slice.op == Op::read ? Mover::Copy{piece.local, batch.stage, piece.length}
                                 : Mover::Copy{batch.stage, piece.local, piece.length};
  const Status started = start(flight, batch, path, list.first(1), piece.length, urgent);
  if (!started) mover_->give_stage(path, batch.stage);
  return started.code();
}

// The caller holds a touch.
ErrorCode Lane::copy_by_cma(std::byte* there, std::byte* here, std::uint64_t length, bool read) {
  const sys::Process::Span span{here, there, static_cast<std::size_t>(length)};
  const Status moved = reach_into({&span, 1}, read);
  if (moved) return ErrorCode::ok;
  why_ = moved.message();
  if (moved.code() != ErrorCode::link_failed) return ErrorCode::system_error;
  pair_->gone = true;  // the peer's process has ended; the engine decides what that means for the transfer
  fail(moved);
  return ErrorCode::link_failed;
}

Status Lane::start(Flight& flight, Batch batch, const Mover::Path& path, std::span<const Mover::Copy> copies,
                   std::uint64_t bytes, bool urgent) {
  batch.flight = static_cast<std::uint32_t>(&flight - flights_.data());
  batch.bytes = bytes;
  const Status started = start(std::move(batch), path, copies, urgent, flight.command.slice.start_after);
  if (!started) {
    why_ = started.message();
    return started;
  }
  flight.touched = true;
  ++flight.asked;
  ++flight.queued;
  return {};
}

// The caller holds a touch.
Status Lane::start(Batch batch, const Mover::Path& path, std::span<const Mover::Copy> copies, bool urgent,
                   void* after) {
  std::atomic<std::uint64_t>& queued = pair_->out().queued;
  queued.store(queued.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  const Status started = mover_->start(path, copies, urgent, after, batch.ticket);
  batch.over = !started;
  if (started)
    queued_bytes_ += batch.bytes;
  else
    batch.file.reset();
  batches_.push_back(std::move(batch));
  return started;
}

// As any read of the peer's memory: its owner waits for the copy, and it keeps the memory open until it is over.
bool Lane::read_to_wake(RegionId id, const Remote& remote, const Mover::Waking& waking) {
  if (broken_) return false;
  const Touch touch(*pair_);
  Region region;
  if (!touch.allowed() || !pair_->regions.read(id, region) || !includes(region.access, Access::read)) return false;
  const std::uint64_t length = std::min<std::uint64_t>(waking.into.size(), region.size_bytes);
  const std::byte* const from = remote.place(waking.path.base, waking.path.size, 0, length);
  if (from == nullptr || length == 0) return false;
  const std::span<Mover::Copy> list = mover_->list(waking.path);
  list[0] = {waking.into.data(), from, length};
  Batch batch;
  batch.bytes = length;
  batch.file = remote.file;
  return start(std::move(batch), waking.path, list.first(1), true, nullptr).is_ok();
}

bool Lane::reads_to_wake() const {
  return std::ranges::any_of(batches_, [](const Batch& batch) { return !batch.over && batch.flight == kNoFlight; });
}

ErrorCode Lane::list_parts(Flight& flight, const Remote& remote, const Mover::Path& path, std::uint64_t region_size,
                           std::uint64_t part, std::span<Mover::Copy> list, std::size_t& count, std::uint64_t& bytes) {
  const Slice& slice = flight.command.slice;
  while (count < list.size() && bytes < path.most_copied && !flight.cursor.done(slice)) {
    Piece piece;
    const ErrorCode code = flight.cursor.next(flight.command, std::min(part, path.most_copied - bytes), piece);
    if (code != ErrorCode::ok) return code;
    if (piece.remote_block > region_size || slice.length > region_size - piece.remote_block)
      return ErrorCode::out_of_range;
    std::byte* there = remote.place(path.base, path.size, piece.remote_block + piece.offset, piece.length);
    if (there == nullptr) return ErrorCode::out_of_range;
    if (piece.length == 0) continue;
    if (slice.op == Op::read)
      list[count++] = {piece.local, there, piece.length};
    else
      list[count++] = {there, piece.local, piece.length};
    bytes += piece.length;
  }
  return ErrorCode::ok;
}

// list_parts() for whole pages at a few nanoseconds each: computes the largest allowed index once.
ErrorCode Lane::list_pages(Flight& flight, const Remote& remote, const Mover::Path& path, std::uint64_t region_size,
                           std::span<Mover::Copy> list, std::size_t& count, std::uint64_t& bytes) {
  const Command& command = flight.command;
  const Slice& slice = command.slice;
  const auto largest = [&](std::uint64_t from, std::uint64_t size, std::uint64_t unit, std::uint64_t& out) {
    if (from > size || slice.length > size - from) return false;
    out = unit == 0 ? ~std::uint64_t{0} : (size - from - slice.length) / unit;
    return true;
  };
  std::uint64_t most_here = 0, most_there = 0;
  if (!largest(static_cast<std::uint64_t>(slice.local - command.local_begin), command.local_size, slice.local_stride,
               most_here) ||
      !largest(slice.remote_offset, region_size, slice.remote_stride, most_there))
    return ErrorCode::out_of_range;
  std::byte* const there = remote.place(path.base, path.size, 0, region_size);  // all of the region
  if (there == nullptr) return ErrorCode::out_of_range;
  const bool read = slice.op == Op::read;
  std::uint32_t& block = flight.cursor.block;
  for (; count < list.size() && bytes < path.most_copied && block < slice.count; ++block, bytes += slice.length) {
    const std::uint64_t here = slice.local_index[block], far = slice.remote_index[block];
    if (here > most_here || far > most_there) return ErrorCode::out_of_range;
    std::byte* const ours = slice.local + here * slice.local_stride;
    std::byte* const theirs = there + slice.remote_offset + far * slice.remote_stride;
    list[count++] = read ? Mover::Copy{ours, theirs, slice.length} : Mover::Copy{theirs, ours, slice.length};
  }
  return ErrorCode::ok;
}

// Copies from the stage to the peer, if the region still allows it.
ErrorCode Lane::second_step(const Flight& flight, const Batch& batch) {
  if (flight.command.slice.op == Op::read || flight.code != ErrorCode::ok) return ErrorCode::ok;
  const Touch touch(*pair_);
  if (!touch.allowed()) return ErrorCode::link_failed;
  RegionView::Resolved at;
  const ErrorCode code = pair_->regions.resolve(flight.command.region, batch.there, batch.bytes, Access::write, at);
  return code == ErrorCode::ok ? copy_by_cma(at.address, batch.stage, batch.bytes, false) : code;
}

void Lane::collect_copies() {
  for (Batch& batch : batches_) {
    if (batch.over) continue;
    std::string why;
    const Mover::Readiness state = mover_->poll(batch.ticket, why);
    if (state == Mover::Readiness::opening) continue;
    batch.over = true;
    batch.file.reset();
    queued_bytes_ -= batch.bytes;
    if (batch.flight == kNoFlight) continue;
    Flight& flight = flights_[batch.flight];
    ErrorCode code = state == Mover::Readiness::refused ? ErrorCode::system_error : ErrorCode::ok;
    if (code != ErrorCode::ok) why_ = why;
    if (batch.stage != nullptr) {
      if (code == ErrorCode::ok) code = second_step(flight, batch);
      mover_->give_stage(batch.path, batch.stage);
    }
    if (flight.code == ErrorCode::ok) flight.code = code;
    --flight.queued;
    --flight.asked;
    answered(flight);
  }
  std::uint64_t ended = 0;
  while (!batches_.empty() && batches_.front().over) {
    batches_.pop_front();
    ++ended;
  }
  std::atomic<std::uint64_t>& over = pair_->out().over;
  if (ended != 0) over.store(over.load(std::memory_order_relaxed) + ended, std::memory_order_release);
}

// What is done within the call. The transport's part lies here too, so that a compiler makes one function of both.

// Small slices pass large ones, as in work(), but neither each other nor, with an immediate, an immediate or message.
AtOnce Lane::move_now(const SmallMove& move, RegionId region, Remote& remote) {
  const bool tells = move.op == Op::write_immediate;
  if (broken_ || !urgent_.empty() || (tells && ordered_in_bulk_ > 0)) return AtOnce::later;
  if (remote.method == Method::pending) return AtOnce::later;
  if (remote.method != Method::mapped && remote.method != Method::cma) return AtOnce::never;
  if (remote.method == Method::cma && !pair_->no_cma.empty()) return AtOnce::never;
  if (tells) {
    if (!writer_.has_space()) return AtOnce::later;
    writer_.expect();
  }
  const bool reads = move.op == Op::read;
  std::byte* const there =
      remote.method == Method::mapped
          ? remote.place(remote.file->map->address(), remote.file->map->size_bytes(), move.remote_offset, move.length)
          : nullptr;
  if (!reads && there != nullptr) {  // another core may have either: both come at once
    prefetch_to_write(there);
    __builtin_prefetch(move.local);
  }
  {
    const Touch touch(*pair_);
    if (!touch.allowed()) return AtOnce::later;  // work() breaks the link
    RegionView::Resolved at;
    const ErrorCode code = pair_->regions.resolve(region, move.remote_offset, move.length, needed_access(move.op), at);
    if (code != ErrorCode::ok) return AtOnce::later;
    if (remote.method == Method::mapped) {
      if (there == nullptr) return AtOnce::later;
      if (move.length != 0) std::memmove(reads ? move.local : there, reads ? there : move.local, move.length);
    } else if (move.length != 0) {
      const sys::Process::Span span{move.local, at.address, static_cast<std::size_t>(move.length)};
      if (!reach_into({&span, 1}, reads)) return AtOnce::later;
    }
    if (tells) {
      if (!writer_.push_immediate(move.immediate)) return AtOnce::later;
      pushed_ = true;
    }
  }
  if (tells) ring();
  return AtOnce::done;
}

// It is in the ring, which the peer reads to its end: so it is done as one that was posted, under the same touch.
AtOnce Lane::send_now(std::span<const std::byte> head, std::span<const std::byte> tail) {
  if (broken_ || !urgent_.empty() || ordered_in_bulk_ > 0) return AtOnce::later;
  {
    const Touch touch(*pair_);
    if (!touch.allowed() || !send_message(head, tail)) return AtOnce::later;
  }
  ring();
  return AtOnce::done;
}

[[gnu::flatten]] AtOnce HostTransport::move_now(const SmallMove& move) {
  Link* link = find(move.link);
  if (closed_ || link == nullptr || link->state != LinkState::up) return AtOnce::later;
  auto* import = imports_.find(move.remote_handle, link->peer);
  if (import == nullptr) return AtOnce::later;
  return link->lane->move_now(move, import->region, import->extra);
}

[[gnu::flatten]] AtOnce HostTransport::send_now(LinkId id, std::span<const std::byte> head,
                                                std::span<const std::byte> tail) {
  Link* link = find(id);
  if (closed_ || link == nullptr || link->state != LinkState::up) return AtOnce::later;
  return link->lane->send_now(head, tail);
}

}  // namespace fairway::transport::host
