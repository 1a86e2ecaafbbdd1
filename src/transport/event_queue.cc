#include "transport/event_queue.h"

namespace fairway::transport {

Event& EventQueue::add(EventKind kind, LinkId link, std::span<const std::byte> bytes) {
  Queued& queued = queue_.emplace_back();
  queued.event.kind = kind;
  queued.event.link = link;
  queued.begin = arena_.size();
  queued.size = bytes.size();
  arena_.insert(arena_.end(), bytes.begin(), bytes.end());
  return queued.event;
}

void EventQueue::begin_poll() {
  if (queue_.empty()) arena_.clear();
}

std::size_t EventQueue::take(std::span<Event> events) {
  std::size_t stored = 0;
  for (; stored < events.size() && !queue_.empty(); ++stored) {
    Queued& queued = queue_.front();
    events[stored] = std::move(queued.event);
    if (queued.size != 0) events[stored].bytes = std::span(arena_).subspan(queued.begin, queued.size);
    queue_.pop_front();
  }
  return stored;
}

}  // namespace fairway::transport
