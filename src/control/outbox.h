#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fairway/status.h"

namespace fairway::control {

// The messages of one session that the peer has not acknowledged, in order. A new connection retransmits what the
// broken one lost. A value on the control thread; the Mailbox bounds its size.
class Outbox {
 public:
  struct Next {
    std::uint64_t sequence;
    const std::string& bytes;
  };

  void add(std::string bytes) {
    if (!messages_) messages_ = std::make_unique<std::deque<std::string>>();
    messages_->push_back(std::move(bytes));
  }
  // The next message not yet written to this connection. written() advances.
  std::optional<Next> next() const;
  void written() { ++written_; }

  // Drops the messages up to `sequence` and returns their accounted bytes. Error: protocol_error when `sequence` was
  // never sent.
  Result<std::uint64_t> acknowledge(std::uint64_t sequence);
  // Starts a new connection whose peer has received everything up to `sequence`; later messages are retransmitted.
  Result<std::uint64_t> resume(std::uint64_t sequence);
  // The connection broke: what it carried may not have arrived.
  void rewind() { written_ = 0; }

  bool empty() const { return count() == 0; }

 private:
  std::size_t count() const { return messages_ ? messages_->size() : 0; }

  // The first has sequence number first_. Null while there is none: an empty deque takes 600 bytes.
  std::unique_ptr<std::deque<std::string>> messages_;
  std::uint64_t first_ = 1;
  std::size_t written_ = 0;  // how many of messages_ were written to this connection
};

// Added to the size of each message when it is counted against Options::max_queued_bytes: the memory that keeping it
// costs.
inline constexpr std::uint32_t kMessageOverhead = 64;

}  // namespace fairway::control
