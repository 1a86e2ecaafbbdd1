#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/connection.h"
#include "control/context.h"
#include "control/control.h"
#include "control/frame.h"
#include "core/time.h"

namespace fairway::control {

inline constexpr Time kMinTimeout = 50 * kMillisecond;
inline constexpr Time kMaxTimeout = 3600 * kSecond;

// Failure detection for one peer. A value; it has no clock of its own.
//
// Each side sends a heartbeat every quarter of the shorter of the two timeouts. A peer is dead when nothing valid
// arrives from it for `timeout`. It is also dead when its workers are stuck: four heartbeats in a row, spanning three
// quarters of the timeout, report queued work and the same step count.
class Keepalive {
 public:
  Keepalive(Time now, Time our_timeout, Time their_timeout);

  void heard(Time now) { last_heard_ = now; }
  // This process was stopped for `late`; that time does not count against the peer.
  void allow_for_pause(Time now, Time late);
  // True when the peer's workers are stuck.
  bool on_beat(const Beat& beat);
  void restarted() { same_beats_ = 0; }  // a new connection replaced the old one

  bool beat_due(Time now) const { return now >= next_beat_; }
  void beat_sent(Time now);
  Time next_beat() const { return next_beat_; }
  Time dead_at() const { return after(last_heard_, timeout_); }
  Time timeout() const { return timeout_; }
  Time interval() const { return interval_; }

 private:
  Time timeout_;
  Time interval_;
  Time last_heard_;
  Time next_beat_ = 0;
  std::uint64_t steps_ = 0;
  std::uint32_t same_beats_ = 0;
};

// A session with one incarnation of one peer: its messages, acknowledgements and heartbeats. It outlives its connection
// and resumes on the next one. Owned by Sessions, used on the control thread. An idle session holds about 2 KiB
// including its connection.
class Session {
 public:
  Session(ControlContext& context, SessionId id, std::uint64_t wire_id, PeerInfo peer, Keepalive keepalive);

  SessionId id() const { return id_; }
  std::uint64_t wire_id() const { return wire_id_; }  // the session id that both sides use on the wire
  const PeerInfo& peer() const { return peer_; }
  std::string label() const;  // "decode-3 (10.0.0.7:4000)"
  bool with_self() const { return with_self_; }
  void make_self() { with_self_ = true; }

  // Why the session ended, and what to tell the peer, if anything.
  struct End {
    Status reason;
    std::optional<Reason> tell;
  };

  // Attaches a new connection. The peer has received this side's messages up to sequence number `received`.
  Status attach(std::unique_ptr<Connection> connection, std::uint64_t received, std::uint64_t stamp, Time now);
  bool connected() const { return connection_ != nullptr; }
  std::unique_ptr<Connection> detach();

  void add(std::string message) { outbox_.add(std::move(message)); }
  // Reads all that arrived and passes it to the observer. Returns an End when the session is over.
  std::optional<End> receive(Time now);
  // Writes the acknowledgement, messages and heartbeat that are due. True when more is left than one step writes.
  bool transmit(Time now, const Progress* progress);

  std::uint64_t received() const { return received_; }
  std::uint64_t peer_stamp() const { return peer_stamp_; }
  Keepalive& keepalive() { return keepalive_; }
  bool has_unread() const { return connection_ && connection_->has_unread(); }
  // Its connection must be visited at the next step, whatever `list` of announce_in() says by then.
  bool is_busy() const { return connection_ && (!announces_ || connection_->is_busy()); }
  void announce_in(std::vector<std::uint32_t>& list, std::uint32_t number) {
    announces_ = connection_ && connection_->announce_in(&list, number);
  }
  const Status& last_break() const { return last_break_; }
  std::uint32_t flaps() const { return flaps_; }  // connections in a row that broke soon after they were made

  std::string dialed;        // the address that connect() was given; empty when the peer dialed
  bool ready = false;        // Sessions visits it in this step
  bool dialable = true;      // whether the peer's address is valid from this host
  Status disconnect_reason;  // the reason to send to the peer when disconnecting; ok: an orderly end

 private:
  std::optional<End> on_frame(const Frame& frame, Time now);
  std::optional<End> on_message(const Frame& frame);
  std::optional<End> acknowledged(std::uint64_t sequence);

  ControlContext& context_;
  const SessionId id_;
  const std::uint64_t wire_id_;
  const PeerInfo peer_;
  bool with_self_ = false;
  bool announces_ = false;  // the connection says when something came
  Keepalive keepalive_;
  std::unique_ptr<Connection> connection_;
  Time connected_at_ = 0;
  std::uint32_t flaps_ = 0;
  Status last_break_;
  std::uint64_t peer_stamp_ = 0;
  Outbox outbox_;
  std::uint64_t received_ = 0;      // sequence number of the last message received
  std::uint64_t acknowledged_ = 0;  // the last sequence number acknowledged to the peer
  std::uint64_t unacknowledged_bytes_ = 0;
};

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
