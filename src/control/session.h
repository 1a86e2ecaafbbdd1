#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/bodies.h"
#include "control/connection.h"
#include "control/context.h"
#include "control/control.h"
#include "control/keepalive.h"
#include "control/outbox.h"

namespace fairway::control {

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

}  // namespace fairway::control
