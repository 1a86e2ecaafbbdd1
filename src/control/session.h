#pragma once

#include <memory>
#include <optional>
#include <string>

#include "control/bodies.h"
#include "control/connection.h"
#include "control/control.h"
#include "control/keepalive.h"
#include "control/outbox.h"
#include "control/self.h"

namespace fairway::control {

// A session with one life of one peer: its messages, its acknowledgements and its heartbeat, over one connection after
// another. Owned by Sessions, on control's thread. Idle it holds about 2 KiB with its connection.
class Session {
 public:
  Session(Self& self, SessionId id, std::uint64_t wire_id, PeerInfo peer, Keepalive keepalive);

  SessionId id() const { return id_; }
  std::uint64_t wire_id() const { return wire_id_; }  // the number both sides know it by
  const PeerInfo& peer() const { return peer_; }
  std::string label() const;  // "decode-3 (10.0.0.7:4000)"
  bool with_self() const { return with_self_; }
  void make_self() { with_self_ = true; }

  // Why it is over, and whether the peer is to be told.
  struct End {
    Status reason;
    std::optional<Reason> tell;
  };

  // A new connection; `received` is how far the peer has this side's messages.
  Status attach(std::unique_ptr<Connection> connection, std::uint64_t received, std::uint64_t stamp, Time now);
  bool connected() const { return connection_ != nullptr; }
  std::unique_ptr<Connection> detach();

  void add(std::string message) { outbox_.add(std::move(message)); }
  // Reads all that came and tells the observer. An End when the session is over.
  std::optional<End> receive(Time now);
  // Writes what waits: acknowledgement, messages, heartbeat. True when more waits than one step should write.
  bool transmit(Time now, const Progress* progress);

  std::uint64_t received() const { return received_; }
  std::uint64_t peer_stamp() const { return peer_stamp_; }
  Keepalive& keepalive() { return keepalive_; }
  bool hungry() const { return connection_ && connection_->hungry(); }
  const Status& last_break() const { return last_break_; }
  std::uint32_t flaps() const { return flaps_; }  // connections in a row that broke soon after they were made

  std::string dialed;    // the address that connect() was given, when this side dialed
  bool dialable = true;  // the peer's address means something here
  Status parting;        // why it is to be ended, in words for the peer; ok: in order

 private:
  std::optional<End> on_frame(const Frame& frame, Time now);
  std::optional<End> on_message(const Frame& frame);
  std::optional<End> acknowledged(std::uint64_t sequence);

  Self& self_;
  const SessionId id_;
  const std::uint64_t wire_id_;
  const PeerInfo peer_;
  bool with_self_ = false;
  Keepalive keepalive_;
  std::unique_ptr<Connection> connection_;
  Time connected_at_ = 0;
  std::uint32_t flaps_ = 0;
  Status last_break_;
  std::uint64_t peer_stamp_ = 0;
  Outbox outbox_;
  std::uint64_t received_ = 0;      // the last message that arrived
  std::uint64_t acknowledged_ = 0;  // what the peer was told of it
  std::uint64_t unacknowledged_bytes_ = 0;
};

}  // namespace fairway::control
