#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace fairway::transport {

// The events of a transport that wait to be polled, with the bytes they lend: those of polled events stay where they
// are until the next poll, whatever is added in between (a fence adds what a peer had sent). Owner: the transport's
// worker.
class EventQueue {
 public:
  Event& add(EventKind kind) {
    Event& event = queue_.emplace_back();
    event.kind = kind;
    return event;
  }
  Event& add(EventKind kind, LinkId link, std::span<const std::byte> bytes);
  // Room for what one more look at the peers may bring; false: poll first.
  [[nodiscard]] bool has_room() const { return queue_.size() < kEnough && lent_ < kEnoughBytes; }
  [[nodiscard]] std::size_t size() const { return queue_.size(); }
  [[nodiscard]] bool empty() const { return queue_.empty(); }

  void begin_poll();  // what the last poll lent is free again
  std::size_t take(std::span<Event> events);

 private:
  static constexpr std::size_t kEnough = 1024, kEnoughBytes = 256 * 1024, kBlock = 64 * 1024;
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size, used;
  };
  std::span<const std::byte> keep(std::span<const std::byte> bytes);

  std::deque<Event> queue_;
  std::vector<Block> blocks_;
  std::size_t block_ = 0;  // the one being filled
  std::size_t lent_ = 0;   // bytes
};

}  // namespace fairway::transport
