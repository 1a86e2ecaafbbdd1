#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace fairway::transport {

// A transport's events that wait to be polled, and the bytes they point to. Bytes of polled events stay valid until the
// next poll, even when events are added in between (a fence adds what the peer had sent). Owner: the transport's
// worker.
class EventQueue {
 public:
  Event& add(EventKind kind) {
    if (end_ == places_.size()) evict_oldest();
    Event& event = places_[end_++];
    event.kind = kind;
    event.device = 0;
    event.token = 0;
    event.peer = 0;
    event.link = {};
    event.value = 0;
    event.bytes = {};
    if (!event.status) event.status = {};
    return event;
  }
  Event& add(EventKind kind, LinkId link, std::span<const std::byte> bytes) {
    Event& event = add(kind);
    event.link = link;
    event.bytes = keep(bytes);
    return event;
  }
  Event& add(EventKind kind, LinkId link, Status status);
  void no_link(PeerIndex peer, Status why);  // link_down of a connect() that failed
  void fenced(LinkId link, std::uint64_t immediates, Status status = {});
  // Fails a slice that post() accepted but `transport` cannot send.
  void refuse(const Slice& slice, const std::string& transport, ErrorCode code);
  // Whether there is room for the events of one more receive(). False: poll first.
  [[nodiscard]] bool has_space() const { return size() < kEnough && lent_ < kEnoughBytes; }
  [[nodiscard]] std::size_t size() const { return end_ - begin_; }
  [[nodiscard]] bool empty() const { return end_ == begin_; }

  void begin_poll() {  // frees the bytes of the last poll's events
    if (empty() && lent_ > 0) free_bytes();
  }
  void clear() { begin_ = end_ = 0; }
  std::size_t take(std::span<Event> events) { return empty() ? 0 : take_first(events); }

 private:
  static constexpr std::size_t kEnough = 1024, kEnoughBytes = 256 * 1024, kBlock = 64 * 1024;
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size;
  };
  std::span<const std::byte> keep(std::span<const std::byte> bytes) {
    if (bytes.empty()) return {};
    if (left_ < bytes.size()) next_block(bytes.size());
    std::byte* const place = next_;
    std::memcpy(place, bytes.data(), bytes.size());
    next_ += bytes.size();
    left_ -= bytes.size();
    lent_ += bytes.size();
    return {place, bytes.size()};
  }
  void next_block(std::size_t least);
  void evict_oldest();
  void free_bytes();
  std::size_t take_first(std::span<Event> events);

  std::vector<Event> places_;  // those from begin_ to end_ wait
  std::size_t begin_ = 0, end_ = 0;
  std::vector<Block> blocks_;
  std::size_t unused_ = 0;     // the first of them that is not being filled
  std::byte* next_ = nullptr;  // in the one that is
  std::size_t left_ = 0;       // bytes behind it
  std::size_t lent_ = 0;       // bytes
};

// What all lanes of a transport share: its events and its cost counters. Owner: the transport's worker; any thread may
// read the counters.
class Inbox : public EventQueue {
 public:
  explicit Inbox(CostCounters& counters) : system_calls(counters.system_calls), copied_bytes(counters.copied_bytes) {}

  std::atomic<std::uint64_t>& system_calls;
  std::atomic<std::uint64_t>& copied_bytes;
};

}  // namespace fairway::transport
