#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "fairway/status.h"

namespace fairway::control {

// The messages of one session that the peer has not acknowledged, in order: kept so that a new connection can carry
// what the broken one lost. A value of control's thread; its size is bounded by who adds (Mailbox).
class Outbox {
 public:
  struct Next {
    std::uint64_t sequence;
    const std::string& bytes;
  };

  void add(std::string bytes) { messages_.push_back(std::move(bytes)); }
  // The next one that this connection has not carried; written() moves on.
  std::optional<Next> next() const;
  void written() { ++written_; }

  // Drops what arrived; returns the bytes' accounted size. protocol_error for more than was ever sent.
  Result<std::uint64_t> acknowledge(std::uint64_t sequence);
  // A new connection, whose other end has everything up to `sequence`: what follows goes out again.
  Result<std::uint64_t> resume(std::uint64_t sequence);
  // The connection broke: nothing of what it carried is known to have arrived.
  void rewind() { written_ = 0; }

  bool empty() const { return messages_.empty(); }

 private:
  std::deque<std::string> messages_;  // the first has sequence first_
  std::uint64_t first_ = 1;
  std::size_t written_ = 0;  // how many of messages_ this connection has carried
};

// What one message counts for against Options::max_queued_bytes: its bytes and what keeping it costs.
inline constexpr std::uint32_t kMessageOverhead = 64;

}  // namespace fairway::control
