#include "transport/tcp/inbox.h"

namespace fairway::transport::tcp {

void Inbox::add_message(LinkId link, std::span<const std::byte> bytes, EventKind kind) {
  Queued& queued = queue_.emplace_back();
  queued.event.kind = kind;
  queued.event.link = link;
  queued.begin = arena_.size();
  queued.size = bytes.size();
  arena_.insert(arena_.end(), bytes.begin(), bytes.end());
}

void Inbox::begin_poll() {
  if (queue_.empty()) arena_.clear();
}

std::size_t Inbox::take(std::span<Event> events) {
  std::size_t stored = 0;
  for (; stored < events.size() && !queue_.empty(); ++stored) {
    Queued& queued = queue_.front();
    events[stored] = std::move(queued.event);
    if (queued.size != 0) events[stored].bytes = std::span(arena_).subspan(queued.begin, queued.size);
    queue_.pop_front();
  }
  return stored;
}

}  // namespace fairway::transport::tcp
