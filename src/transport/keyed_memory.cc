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

void SlowDeregistrations::run(Ending& ending) {
  if (!ending.end) return;
  Status status = ending.end();
  if (status) ending.end = nullptr;
  if (ending.held) ending.held = std::move(status);
}

void SlowDeregistrations::tell(Ending ending, EventQueue& events) {
  Event& event = events.add(EventKind::deregistered);
  event.value = ending.handle;
  event.status = ending.held;
  if (ending.end) kept_[ending.handle] = std::move(ending);
}

void SlowDeregistrations::end(Ending ending, Janitor& janitor, Task* task, EventQueue& events) {
  if (auto kept = kept_.extract(ending.handle); !kept.empty() && !ending.end) {
    ending.end = std::move(kept.mapped().end);
    ending.slow = kept.mapped().slow;
  }
  if (!ending.slow) {
    run(ending);
    return tell(std::move(ending), events);
  }
  ++under_way_;
  janitor.end([this, ending = std::move(ending), task]() mutable {
    run(ending);
    {
      const std::lock_guard lock(mutex_);
      over_.push_back(std::move(ending));
    }
    if (task != nullptr) task->wake();
  });
}

void SlowDeregistrations::report(EventQueue& events) {
  std::vector<Ending> over;
  {
    const std::lock_guard lock(mutex_);
    over.swap(over_);
  }
  under_way_ -= over.size();
  for (Ending& each : over) tell(std::move(each), events);
}

void SlowDeregistrations::try_again() {
  std::erase_if(kept_, [](auto& each) { return each.second.end().is_ok(); });
}

}  // namespace fairway::transport
