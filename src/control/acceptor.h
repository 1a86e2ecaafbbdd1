#pragma once

#include <memory>
#include <vector>

#include "control/dialer.h"
#include "control/session.h"

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

  static constexpr std::size_t kMaxPending = 64;
  static constexpr Time kHandshakeTimeout = kSecond;  // time limit of the whole handshake
  static constexpr Time kEvictable = 100 * kMillisecond;

 private:
  struct Pending {
    std::unique_ptr<Connection> connection;
    Time since;
    bool identity_sent = false;
  };

  void accept(Time now);
  bool evict_oldest(Time now);
  bool step(Pending& pending, Time now);
  void decide(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void decide_connect(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void decide_resume(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void refuse(std::unique_ptr<Connection> connection, Reason reason, std::string text, Time now);

  ControlContext& context_;
  Sessions& sessions_;
  const Dialer& dialer_;
  DirectoryServer* const directory_;  // null when this engine serves no directory
  std::unique_ptr<Listener> listener_;
  std::vector<Pending> pending_;  // oldest first
  Time accept_again_ = 0;  // do not accept before this time (out of descriptors); kNever: only when a connection waits
};

}  // namespace fairway::control
