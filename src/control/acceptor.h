#pragma once

#include <memory>

#include "control/dialer.h"
#include "control/session.h"
#include "core/pending_connections.h"

namespace fairway::control {

class DirectoryServer;

// Incoming connections, from accept until the peer is authenticated and its request known. Their number and their time
// are limited: an unauthenticated peer costs one descriptor and a few hundred bytes for at most a second. Runs on the
// control thread.
class Acceptor {
 public:
  Acceptor(ControlContext& context, Sessions& sessions, const Dialer& dialer, DirectoryServer* directory)
      : context_(context), sessions_(sessions), dialer_(dialer), directory_(directory) {}

  Status listen(const std::string& address);
  std::string address() const { return listener_->address(); }
  void close();
  Time step(Time now);

 private:
  struct Incoming {
    std::unique_ptr<Connection> connection;
    bool identity_sent = false;
  };
  using Pending = PendingConnections<Incoming>;

  void accept(Time now);
  bool step(Incoming& incoming, bool late, Time now);
  void decide(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void decide_connect(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void decide_resume(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void refuse(std::unique_ptr<Connection> connection, Reason reason, std::string text, Time now);

  ControlContext& context_;
  Sessions& sessions_;
  const Dialer& dialer_;
  DirectoryServer* const directory_;  // null when this engine serves no directory
  std::unique_ptr<Listener> listener_;
  // While it is full, connections wait in the kernel's accept queue. Real peers finish the handshake in milliseconds.
  Pending pending_{{.per_poll = 64, .evictable = 100 * kMillisecond, .pause = 1, .when_full = 10 * kMillisecond}};
};

}  // namespace fairway::control
