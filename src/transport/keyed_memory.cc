#include "transport/keyed_memory.h"

#include <utility>

namespace fairway::transport {

ErrorCode check_blocks(const Command& command, std::uint64_t remote_size, std::uint32_t most_blocks,
                       std::uint64_t most) {
  const Slice& slice = command.slice;
  if (slice.count > most_blocks) return ErrorCode::invalid_argument;
  for (std::uint32_t i = 0; i < slice.count; ++i) {
    std::uint64_t at = slice.remote_offset;
    if (slice.shape != Shape::contiguous &&
        !advance(at, slice.shape == Shape::indexed ? slice.remote_index[i] : i, slice.remote_stride))
      return ErrorCode::out_of_range;
    if (at > remote_size || slice.length > remote_size - at) return ErrorCode::out_of_range;
  }
  if (command.local_begin == nullptr) return ErrorCode::ok;
  BlockCursor cursor;
  for (Piece piece; !cursor.done(slice);)
    if (const ErrorCode block = cursor.next(command, most, piece); block != ErrorCode::ok) return block;
  return ErrorCode::ok;
}

void SlowDeregistrations::end(std::shared_ptr<void> registration, std::uint64_t handle, bool slow, Janitor& janitor,
                              Task* task, EventQueue& events) {
  if (!slow) {
    registration.reset();
    events.add(EventKind::deregistered).value = handle;
    return;
  }
  ++under_way_;
  janitor.end([this, registration = std::move(registration), handle, task]() mutable {
    registration.reset();
    {
      const std::lock_guard lock(mutex_);
      over_.push_back(handle);
    }
    if (task != nullptr) task->wake();
  });
}

void SlowDeregistrations::report(EventQueue& events) {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t handle : over_) events.add(EventKind::deregistered).value = handle;
  under_way_ -= over_.size();
  over_.clear();
}

}  // namespace fairway::transport
