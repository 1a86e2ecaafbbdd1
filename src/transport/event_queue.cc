#include "transport/event_queue.h"

#include <algorithm>
#include <utility>

#include "transport/command.h"

namespace fairway::transport {

Event& EventQueue::add(EventKind kind, LinkId link, Status status) {
  Event& event = add(kind);
  event.link = link;
  event.status = std::move(status);
  return event;
}

void EventQueue::no_link(PeerIndex peer, Status why) {
  add(EventKind::link_down, {}, std::move(why)).peer = peer;
}

void EventQueue::fenced(LinkId link, std::uint64_t immediates, Status status) {
  add(EventKind::fenced, link, std::move(status)).value = immediates;
}

void EventQueue::refuse(const Slice& slice, const std::string& transport, ErrorCode code) {
  const Status why(code, transport + ": " + describe_failure(code));
  add(EventKind::failed, slice.link, why.with_effect(Effect::not_applied)).token = slice.token;
}

void EventQueue::next_block(std::size_t least) {
  while (unused_ < blocks_.size() && blocks_[unused_].size < least) ++unused_;
  if (unused_ == blocks_.size()) {
    const std::size_t size = std::max(kBlock, least);
    blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
  }
  next_ = blocks_[unused_].bytes.get();
  left_ = blocks_[unused_++].size;
}

void EventQueue::evict_oldest() {
  if (begin_ > 0) {
    std::move(places_.begin() + static_cast<std::ptrdiff_t>(begin_), places_.end(), places_.begin());
    end_ -= std::exchange(begin_, 0);
  } else {
    places_.resize(std::max<std::size_t>(64, 2 * places_.size()));
  }
}

void EventQueue::free_bytes() {
  next_ = blocks_[0].bytes.get();
  left_ = blocks_[0].size;
  unused_ = 1;
  lent_ = 0;
}

std::size_t EventQueue::take_first(std::span<Event> events) {
  const std::size_t count = std::min(events.size(), size());
  for (std::size_t i = 0; i < count; ++i) events[i] = std::move(places_[begin_ + i]);
  begin_ += count;
  if (empty()) begin_ = end_ = 0;
  return count;
}

}  // namespace fairway::transport
