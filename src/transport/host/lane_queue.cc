#include <algorithm>

#include "transport/host/lane.h"

// Slices whose bytes a device copies: queued under a touch, announced to the memory's owner before that and after their
// end, so that it knows what may still land.
namespace fairway::transport::host {
namespace {

constexpr std::size_t kMaxCopies = 4096;  // given to a device at once
constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMaxBatches = 256;

}  // namespace

// The next batch of the flight; nothing, when as much is queued as the path moves in a few milliseconds.
ErrorCode Lane::queue_copies(Flight& flight, const Remote& remote, bool urgent) {
  const Slice& slice = flight.command.slice;
  Region region;  // looked up once: copies queued under this touch are waited for
  if (!pair_->regions.read(flight.command.region, region)) return ErrorCode::revoked;
  if (!includes(region.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (mover_ == nullptr || (remote.way != Way::moved && remote.way != Way::mapped)) {
    why_ = "a device cannot reach that memory of the peer's, which is not mapped here: memory from allocate() is";
    return ErrorCode::system_error;
  }
  Mover::Path path;
  const bool foreign = remote.way == Way::moved;
  switch (mover_->path(region_of(slice.local_handle), foreign ? remote.file->foreign.get() : nullptr, path, why_)) {
    case Mover::Readiness::ready: break;
    case Mover::Readiness::opening: return ErrorCode::ok;
    case Mover::Readiness::refused: return ErrorCode::system_error;
  }
  if (!foreign) {
    path.base = remote.file->map.address();
    path.size = remote.file->map.size_bytes();
  }
  if (batches_.size() >= kMaxBatches || (queued_bytes_ > 0 && queued_bytes_ >= path.most_queued)) return ErrorCode::ok;
  copies_.clear();
  std::uint64_t bytes = 0;
  while (copies_.size() < kMaxCopies && bytes < kMaxBytes && !flight.cursor.done(slice)) {
    Piece piece;
    const ErrorCode code = flight.cursor.next(flight.command, kMaxBytes - bytes, piece);
    if (code != ErrorCode::ok) return code;
    if (piece.remote_block > region.size_bytes || slice.length > region.size_bytes - piece.remote_block)
      return ErrorCode::out_of_range;
    std::byte* there = remote.place(path.base, path.size, piece.remote_block + piece.offset, piece.length);
    if (there == nullptr) return ErrorCode::out_of_range;
    if (piece.length == 0) continue;
    if (slice.op == Op::read)
      copies_.push_back({piece.local, there, piece.length});
    else
      copies_.push_back({there, piece.local, piece.length});
    bytes += piece.length;
  }
  if (copies_.empty()) return ErrorCode::ok;
  std::atomic<std::uint64_t>& queued = pair_->out().queued;
  queued.store(queued.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  Batch batch{static_cast<std::uint32_t>(&flight - flights_.data()), {}, bytes, false};
  const Status started = mover_->start(path, copies_, urgent, batch.ticket);
  batch.over = !started;
  flight.touched = true;
  if (started) {
    ++flight.asked;
    ++flight.queued;
    queued_bytes_ += bytes;
  }
  batches_.push_back(batch);
  if (started) return ErrorCode::ok;
  why_ = started.message();
  return ErrorCode::system_error;
}

void Lane::collect_copies() {
  for (Batch& batch : batches_) {
    if (batch.over) continue;
    std::string why;
    const Mover::Readiness state = mover_->look(batch.ticket, why);
    if (state == Mover::Readiness::opening) continue;
    batch.over = true;
    queued_bytes_ -= batch.bytes;
    Flight& flight = flights_[batch.flight];
    if (state == Mover::Readiness::refused && flight.code == ErrorCode::ok) {
      flight.code = ErrorCode::system_error;
      why_ = why;
    }
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

}  // namespace fairway::transport::host
