#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/self.h"
#include "control/session.h"

namespace fairway::control {

// All sessions of one engine: found, opened, resumed, ended. Control's thread.
class Sessions {
 public:
  explicit Sessions(Self& self) : self_(self) {}

  Session* find(SessionId id);
  Session* find_life(const Identity& peer);           // with that life of that peer
  Session* find_address(const std::string& address);  // its own address, or the one it was dialed by
  bool full() const { return count_ >= self_.mailbox.max_sessions(); }

  // Opens a session over a connection on which both sides know who the other is, and announces it. `received`, `stamp`:
  // what the peer said. The connection may hold frames already.
  Session& open(std::unique_ptr<Connection> connection, const Identity& peer, std::uint64_t wire_id,
                bool initiated_here, std::uint64_t stamp, const std::string& dialed, Time now);
  Session& open_self(Time now);
  // A new connection for it. When the peer's count makes no sense the session ends.
  void resume(Session& session, std::unique_ptr<Connection> connection, std::uint64_t received, std::uint64_t stamp,
              Time now);
  // Ends it and says so to the observer, and to the peer unless `tell` is empty.
  void down(Session& session, const Status& reason, std::optional<Reason> tell, Time now);
  void down_all(const Status& reason, Reason tell, Time now);
  // A peer with that address began another life: a session whose connection is broken is of the earlier one.
  void replaced(const Identity& peer, const std::string& address, Time now);

  void send(SessionId id, std::string message);
  void part(SessionId id, const Status& why);  // what end_disconnected() tells that session's peer
  void end_disconnected(Time now);
  void tell_writable();  // after senders found no room in the mailbox
  // This process did not run for `late`.
  void forgive(Time now, Time late);
  void receive(Time now);
  Time transmit(Time now);

  // Since the last call: sessions that came up, and sessions whose connection broke.
  std::vector<SessionId> take_opened() { return std::exchange(opened_, {}); }
  std::vector<SessionId> take_broken() { return std::exchange(broken_, {}); }

 private:
  Session& place(std::uint64_t wire_id, PeerInfo peer, Keepalive keepalive);
  void end_dead(Time now);

  Self& self_;
  std::vector<std::unique_ptr<Session>> slots_;
  std::size_t count_ = 0;
  std::vector<SessionId> opened_;
  std::vector<SessionId> broken_;
};

}  // namespace fairway::control
