#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fairway/status.h"

#include "control/connection.h"
#include "control/control.h"
#include "control/frame.h"
#include "core/queues.h"
#include "core/runtime.h"

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

// A command from another thread to the control thread.
struct Command {
  enum class Kind : std::uint8_t { connect, resolve, send, disconnect_reason };
  Kind kind = Kind::connect;
  std::uint64_t id = 0;  // connect, resolve: the token; send, disconnect_reason: the session
  Time deadline = kNever;
  std::string bytes;  // the address, the name or the message; disconnect_reason: the text sent to the peer
  ErrorCode code = ErrorCode::closed;  // disconnect_reason
};

// The lock-free queue from the callers of Control to the control thread. It also counts the queued message bytes of
// each session, so that send() reports at once that the session is down or its queue full. Each group of methods below
// names its thread.
class Mailbox {
 public:
  Mailbox(std::uint32_t max_sessions, std::uint32_t max_queued_bytes);

  // Any thread may call these.
  Status post(Command command);
  Status send(SessionId session, std::span<const std::byte> bytes);
  void disconnect(SessionId session, const Status& why = {});  // ok: an orderly disconnect without a reason

  // The control thread calls these.
  bool take(Command& command) { return commands_.pop(command); }
  bool idle() const {
    return commands_.empty() && !disconnects_.load(std::memory_order_acquire) &&
           !overflow_.load(std::memory_order_acquire);
  }
  SessionId open(std::uint32_t slot);
  void shut(std::uint32_t slot);
  // Messages of `bytes` accounted bytes were acknowledged. True when a sender was told queue_full and may retry now.
  bool release(SessionId session, std::uint64_t bytes);
  // Whether anyone called disconnect() since the last call. If so, ask each session with wants_disconnect().
  bool take_disconnects() { return disconnects_.exchange(false, std::memory_order_acq_rel); }
  bool wants_disconnect(SessionId session) const;
  // Whether a send() found the command queue full since the last call. If so, ask each session with freed().
  bool take_overflow() { return overflow_.exchange(false, std::memory_order_acq_rel); }
  // True once when a sender of this session was told queue_full and may retry now.
  bool freed(SessionId session);

  std::uint32_t max_sessions() const { return max_sessions_; }

 private:
  // One per session slot. `state` packs the session's generation (0: no session) above its queued bytes.
  struct Gate {
    std::atomic<std::uint64_t> state{0};
    std::atomic<bool> full{false};
    std::atomic<std::uint32_t> disconnect{0};  // the generation to disconnect
  };
  Gate* gate_of(SessionId session);

  const std::uint32_t max_sessions_;
  const std::uint32_t max_queued_bytes_;
  const std::size_t max_commands_;
  std::uint32_t generation_ = 0;
  const std::unique_ptr<Gate[]> gates_;
  MpscQueue<Command> commands_;
  std::atomic<bool> disconnects_{false};
  std::atomic<bool> overflow_{false};
};

// A SessionId holds a slot and a generation; it is not reused until 2^32 sessions were opened.
inline std::uint32_t slot_of(SessionId session) {
  return static_cast<std::uint32_t>(session & 0xffffffffU);
}

// What the parts of one control instance share: this engine's identity and its runtime. Owned and changed by the
// control thread only; other threads use the mailbox.
struct ControlContext {
  ControlContext(const Options& options_in, const Runtime& runtime_in, Observer& observer_in);

  Options options;
  Runtime runtime;
  Observer& observer;
  Mailbox mailbox;
  Wire wire;
  ClosingConnections closing;
  Task* task = nullptr;  // the control thread's task; set before anything else runs

  std::string name;
  std::string address;
  std::uint64_t incarnation;
  std::uint64_t started_unix_ns;

  // This engine's identity frame; each call has a later stamp.
  Identity identity(Intent intent, std::uint64_t session = 0, std::uint64_t received = 0);
  std::uint64_t next_stamp() { return ++stamp_; }
  bool is_self(const Identity& peer) const { return peer.incarnation == incarnation && peer.name == name; }
  std::uint64_t random_id();  // never 0
  Time jittered(Time delay);  // a random time between 0.5 and 1.5 times `delay`

 private:
  std::uint64_t stamp_ = 0;
};

// "10.0.0.7:4000" for an engine that advertises 0.0.0.0:4000 and connects from 10.0.0.7:51234; otherwise `advertised`.
std::string reachable_address(const std::string& advertised, const std::string& seen_from);

// Decides by the text alone, without a resolver: a loopback address means a different host to everyone who reads it.
bool looks_loopback(const std::string& address);

// Whether `peer` is the same incarnation as the peer of a known session.
bool same_incarnation(const PeerInfo& known, const Identity& peer);

}  // namespace fairway::control
