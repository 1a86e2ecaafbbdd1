#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace fairway::transport::tcp {

// What all lanes of a transport share: the events that wait to be polled with the bytes they lend, the buffers that
// frames are read into, and what it all cost. Owner: the transport's worker; costs are read by anyone.
class Inbox {
 public:
  static constexpr std::size_t kStagingBytes = 64 * 1024;

  Event& add(EventKind kind) {
    Queued& queued = queue_.emplace_back();
    queued.event.kind = kind;
    return queued.event;
  }
  void add_message(LinkId link, std::span<const std::byte> bytes, EventKind kind = EventKind::message);
  Event& last() { return queue_.back().event; }
  // Room for what one more read may bring; false: poll first.
  [[nodiscard]] bool has_room() const { return queue_.size() < kEnough && arena_.size() < kStagingBytes * 4; }
  [[nodiscard]] bool empty() const { return queue_.empty(); }

  void begin_poll();  // what the last poll lent is free again
  std::size_t take(std::span<Event> events);

  std::span<std::byte> staging() { return staging_; }
  std::span<std::byte> sink() { return sink_; }  // where bytes go that nobody wants

  std::atomic<std::uint64_t> system_calls{0};
  std::atomic<std::uint64_t> copied_bytes{0};

 private:
  static constexpr std::size_t kEnough = 1024;
  struct Queued {
    Event event;
    std::size_t begin = 0, size = 0;  // of its bytes in arena_
  };
  std::deque<Queued> queue_;
  std::vector<std::byte> arena_;
  std::vector<std::byte> staging_ = std::vector<std::byte>(kStagingBytes);
  std::vector<std::byte> sink_ = std::vector<std::byte>(kStagingBytes);
};

}  // namespace fairway::transport::tcp
