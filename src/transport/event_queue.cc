#include "transport/event_queue.h"

#include <algorithm>

namespace fairway::transport {

Event& EventQueue::add(EventKind kind, LinkId link, std::span<const std::byte> bytes) {
  Event& event = add(kind);
  event.link = link;
  event.bytes = keep(bytes);
  return event;
}

std::span<const std::byte> EventQueue::keep(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  while (block_ < blocks_.size() && blocks_[block_].size - blocks_[block_].used < bytes.size()) ++block_;
  if (block_ == blocks_.size()) {
    const std::size_t size = std::max(kBlock, bytes.size());
    blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size, 0});
  }
  Block& block = blocks_[block_];
  std::byte* place = block.bytes.get() + block.used;
  std::ranges::copy(bytes, place);
  block.used += bytes.size();
  lent_ += bytes.size();
  return {place, bytes.size()};
}

void EventQueue::begin_poll() {
  if (!queue_.empty()) return;
  for (Block& block : blocks_) block.used = 0;
  block_ = lent_ = 0;
}

std::size_t EventQueue::take(std::span<Event> events) {
  const std::size_t count = std::min(events.size(), queue_.size());
  std::move(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count), events.begin());
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

}  // namespace fairway::transport
