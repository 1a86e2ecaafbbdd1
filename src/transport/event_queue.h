#pragma once

#include <cstddef>
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
    if (end_ == places_.size()) make_room();
    Event& event = places_[end_++];
    event = {};
    event.kind = kind;
    return event;
  }
  Event& add(EventKind kind, LinkId link, std::span<const std::byte> bytes);
  Event& add(EventKind kind, LinkId link, Status status);
  void no_link(PeerIndex peer, Status why);  // link_down of a connect() that failed
  void fenced(LinkId link, std::uint64_t immediates, Status status = {});
  // Fails a slice that post() accepted but `transport` cannot send.
  void refuse(const Slice& slice, const std::string& transport, ErrorCode code);
  // Whether there is room for the events of one more receive(). False: poll first.
  [[nodiscard]] bool has_room() const { return size() < kEnough && lent_ < kEnoughBytes; }
  [[nodiscard]] std::size_t size() const { return end_ - begin_; }
  [[nodiscard]] bool empty() const { return end_ == begin_; }

  void begin_poll();  // frees the bytes of the last poll's events
  std::size_t take(std::span<Event> events);

 private:
  static constexpr std::size_t kEnough = 1024, kEnoughBytes = 256 * 1024, kBlock = 64 * 1024;
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size, used;
  };
  std::span<const std::byte> keep(std::span<const std::byte> bytes);
  void make_room();

  std::vector<Event> places_;  // those from begin_ to end_ wait
  std::size_t begin_ = 0, end_ = 0;
  std::vector<Block> blocks_;
  std::size_t block_ = 0;  // the one being filled
  std::size_t lent_ = 0;   // bytes
};

}  // namespace fairway::transport
