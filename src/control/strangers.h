#pragma once

#include <memory>
#include <vector>

#include "control/dialer.h"
#include "control/sessions.h"

namespace fairway::control {

class DirectoryServer;

// Connections that others open to this engine, until it is known who they are and what they want. Few and for a short
// time: whoever proves nothing costs a descriptor and some hundred bytes for a second. Control's thread.
class Strangers {
 public:
  Strangers(Self& self, Sessions& sessions, const Dialer& dialer, DirectoryServer* directory)
      : self_(self), sessions_(sessions), dialer_(dialer), directory_(directory) {}

  Status listen(const std::string& address);
  std::string address() const { return listener_->address(); }
  void close();
  Time step(Time now);

  static constexpr std::size_t kMost = 64;
  static constexpr Time kPatience = kSecond;  // for the whole handshake
  static constexpr Time kEvictable = 100 * kMillisecond;

 private:
  struct Stranger {
    std::unique_ptr<Connection> connection;
    Time since;
    bool greeted = false;
  };

  void accept(Time now);
  bool make_room(Time now);
  bool step(Stranger& stranger, Time now);
  void decide(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void decide_connect(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void decide_resume(std::unique_ptr<Connection> connection, const Identity& peer, Time now);
  void refuse(std::unique_ptr<Connection> connection, Reason reason, std::string text, Time now);

  Self& self_;
  Sessions& sessions_;
  const Dialer& dialer_;
  DirectoryServer* const directory_;  // null when this engine serves none
  std::unique_ptr<Listener> listener_;
  std::vector<Stranger> strangers_;  // the oldest first
  Time accept_again_ = 0;            // not before, after descriptors ran out; kNever: when a channel waits
};

}  // namespace fairway::control
