#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "control/control.h"
#include "core/queues.h"

namespace fairway::control {

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

}  // namespace fairway::control
