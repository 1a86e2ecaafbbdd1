#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "control/control.h"
#include "core/mpsc_queue.h"

namespace fairway::control {

// What other threads ask of control's thread.
struct Command {
  enum class Kind : std::uint8_t { connect, resolve, send, part };
  Kind kind = Kind::connect;
  std::uint64_t id = 0;  // connect, resolve: the token; send, part: the session
  Time deadline = kNever;
  std::string bytes;                   // the address, the name, the message; part: what the peer is told
  ErrorCode code = ErrorCode::closed;  // part
};

// The named queue between the callers of Control and control's thread: commands, and for each session how many bytes
// its messages hold, so that send() can say at once that the session is gone or its queue full. Lock-free; the methods
// of each part say whose they are.
class Mailbox {
 public:
  Mailbox(std::uint32_t max_sessions, std::uint32_t max_queued_bytes);

  // Any thread.
  Status post(Command command);
  Status send(SessionId session, std::span<const std::byte> bytes);
  void disconnect(SessionId session, const Status& why = {});  // ok: in order, with no words to it

  // Control's thread.
  bool take(Command& command) { return commands_.pop(command); }
  bool idle() const {
    return commands_.empty() && !disconnects_.load(std::memory_order_acquire) &&
           !overflow_.load(std::memory_order_acquire);
  }
  SessionId open(std::uint32_t slot);
  void shut(std::uint32_t slot);
  // Messages of that many accounted bytes arrived. True when a sender was told "full" and may try again now.
  bool release(SessionId session, std::uint64_t bytes);
  // Whether anybody asked to disconnect since the last call; then each session is asked with wants_disconnect().
  bool take_disconnects() { return disconnects_.exchange(false, std::memory_order_acq_rel); }
  bool wants_disconnect(SessionId session) const;
  // Whether a send() found no room for its command since the last call; then each session is asked with freed().
  bool take_overflow() { return overflow_.exchange(false, std::memory_order_acq_rel); }
  // True once when a sender of this session was told "full" and may try again now.
  bool freed(SessionId session);

  std::uint32_t max_sessions() const { return max_sessions_; }

 private:
  // One per slot for a session. `state` holds the session's generation (0: none) above the queued bytes.
  struct Gate {
    std::atomic<std::uint64_t> state{0};
    std::atomic<bool> full{false};
    std::atomic<std::uint32_t> disconnect{0};  // the generation that is to end
  };
  Gate* gate_of(SessionId session);

  const std::uint32_t max_sessions_;
  const std::uint32_t max_queued_bytes_;
  std::uint32_t generation_ = 0;
  const std::unique_ptr<Gate[]> gates_;
  MpscQueue<Command> commands_;
  std::atomic<bool> disconnects_{false};
  std::atomic<bool> overflow_{false};
};

// A session's slot and generation in one number that is never used again (until 2^32 sessions were opened).
inline std::uint32_t slot_of(SessionId session) {
  return static_cast<std::uint32_t>(session & 0xffffffffU);
}

}  // namespace fairway::control
