#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/context.h"
#include "control/session.h"

namespace fairway::control {

// All sessions of one engine: lookup, open, resume, end. Used on the control thread. A step visits those that have
// something to do: bytes came, messages wait, or the first timer of all is due. So it costs what happens, not what
// exists.
class Sessions {
 public:
  explicit Sessions(ControlContext& context) : context_(context) {}

  Session* find(SessionId id);
  Session* find_incarnation(const Identity& peer);    // the session with this incarnation of the peer
  Session* find_address(const std::string& address);  // by the peer's own address or the address it was dialed by
  bool full() const { return count_ >= context_.mailbox.max_sessions(); }

  // Opens a session over an authenticated connection and announces it. `peer` and `stamp` are what the peer sent. The
  // connection may already hold frames.
  Session& open(std::unique_ptr<Connection> connection, const Identity& peer, std::uint64_t wire_id,
                bool initiated_here, std::uint64_t stamp, const std::string& dialed, Time now);
  Session& open_self(Time now);
  // Resumes the session on a new connection. Ends the session when the peer's `received` is impossible.
  void resume(Session& session, std::unique_ptr<Connection> connection, std::uint64_t received, std::uint64_t stamp,
              Time now);
  // Ends the session and tells the observer. Also tells the peer unless `tell` is empty.
  void down(Session& session, const Status& reason, std::optional<Reason> tell, Time now);
  void down_all(const Status& reason, Reason tell, Time now);
  // Another incarnation now has this address: ends the sessions of the earlier one whose connection is broken.
  void end_replaced(const Identity& peer, const std::string& address, Time now);

  void send(SessionId id, std::string message);
  void set_disconnect_reason(SessionId id,
                             const Status& why);  // sets the reason that end_disconnected() sends to the peer
  void end_disconnected(Time now);
  void tell_writable();  // tells sessions whose senders found the mailbox full that they may retry
  // This process was stopped for `late`; see Keepalive.
  void allow_for_pause(Time now, Time late);
  void receive(Time now);
  Time transmit(Time now);

  // Since the last call: the sessions that came up, and the sessions whose connection broke.
  std::vector<SessionId> take_opened() { return std::exchange(opened_, {}); }
  std::vector<SessionId> take_broken() { return std::exchange(broken_, {}); }

 private:
  Session& place(std::uint64_t wire_id, PeerInfo peer, Keepalive keepalive);
  void attached(Session& session);
  void mark(Session& session);  // a step visits it
  void end_dead(Time now);
  void find_timers();

  ControlContext& context_;
  std::vector<std::unique_ptr<Session>> slots_;
  std::size_t count_ = 0;
  // Slots by incarnation, and by the hash of the peer's address and of the address that was dialed.
  std::unordered_multimap<std::uint64_t, std::uint32_t> by_incarnation_;
  std::unordered_multimap<std::size_t, std::uint32_t> by_address_;
  std::vector<std::uint32_t> announced_;  // slots whose connection has something, by Channel::announce_in()
  std::vector<std::uint32_t> ready_;      // slots to visit; those of sessions that ended may still be there
  std::vector<std::uint32_t> visited_;    // of transmit(): its room is kept
  Time timers_at_ = kNever;  // no heartbeat is due before, and no peer is dead: at most the earliest of all sessions
  std::vector<SessionId> opened_;
  std::vector<SessionId> broken_;
};

}  // namespace fairway::control
