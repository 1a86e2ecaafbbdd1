#include "engine/peer_events.h"

#include <algorithm>

namespace fairway::engine {

void PeerEvents::push(PeerEvent event) {
  std::lock_guard lock(mutex_);
  held_.push_back(std::move(event));
  for (std::size_t i = 0; i < held_.size();) {
    const PeerId peer = held_[i].peer;
    const bool behind = std::any_of(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const PeerEvent& each) { return each.peer == peer; });
    if (behind || waits(held_[i])) {
      ++i;
      continue;
    }
    const bool down = held_[i].kind == PeerEvent::Kind::down;
    tell(std::move(held_[i]));
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    if (down) i = 0;  // earlier events may have waited for it
  }
}

// Waits for the end of an earlier session with a peer of that name.
bool PeerEvents::waits(const PeerEvent& event) const {
  return event.kind == PeerEvent::Kind::up && std::any_of(up_.begin(), up_.end(), [&](const auto& each) {
           return each.second == event.name && each.first != event.peer && !peers_.is_usable(each.first);
         });
}

void PeerEvents::tell(PeerEvent event) {
  if (event.kind == PeerEvent::Kind::up) up_.emplace_back(event.peer, event.name);
  if (event.kind == PeerEvent::Kind::down)
    std::erase_if(up_, [&](const auto& each) { return each.first == event.peer; });
  if (events_.size() == kCapacity) {
    events_.pop_front();
    ++dropped_;
  }
  events_.push_back(std::move(event));
  waiting_.store(events_.size(), std::memory_order_seq_cst);
}

std::size_t PeerEvents::pop(std::span<PeerEvent> events) {
  std::lock_guard lock(mutex_);
  std::size_t count = 0;
  while (count < events.size() && !events_.empty()) {
    events[count] = std::move(events_.front());
    events_.pop_front();
    if (dropped_ > 0) {
      events[count].reason =
          Status(events[count].reason.is_ok() ? ErrorCode::resource_exhausted : events[count].reason.code(),
                 std::to_string(dropped_) + " earlier peer events were dropped: nobody polled them; " +
                     events[count].reason.message());
      dropped_ = 0;
    }
    ++count;
  }
  waiting_.store(events_.size(), std::memory_order_seq_cst);
  return count;
}

}  // namespace fairway::engine
