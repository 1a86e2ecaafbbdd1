#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace fairway::transport {

// The events of a transport that wait to be polled, with the bytes they lend. Owner: the transport's worker.
class EventQueue {
 public:
  Event& add(EventKind kind) {
    Queued& queued = queue_.emplace_back();
    queued.event.kind = kind;
    return queued.event;
  }
  Event& add(EventKind kind, LinkId link, std::span<const std::byte> bytes);
  // Room for what one more look at the peers may bring; false: poll first.
  [[nodiscard]] bool has_room() const { return queue_.size() < kEnough && arena_.size() < kEnoughBytes; }
  [[nodiscard]] std::size_t size() const { return queue_.size(); }
  [[nodiscard]] bool empty() const { return queue_.empty(); }

  void begin_poll();  // what the last poll lent is free again
  std::size_t take(std::span<Event> events);

 private:
  static constexpr std::size_t kEnough = 1024, kEnoughBytes = 256 * 1024;
  struct Queued {
    Event event;
    std::size_t begin = 0, size = 0;  // of its bytes in arena_
  };
  std::deque<Queued> queue_;
  std::vector<std::byte> arena_;
};

}  // namespace fairway::transport
