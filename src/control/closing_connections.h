#pragma once

#include <memory>
#include <vector>

#include "control/connection.h"

namespace fairway::control {

// Connections that are finished but still have bytes to deliver. Each lingers until the peer closes, for at most 200
// ms; at most 256 linger at once. Closing a socket with unread input makes the kernel discard what was sent. Used on
// the control thread.
class ClosingConnections {
 public:
  void add(std::unique_ptr<Connection> connection, Time now);
  Time step(Time now);
  bool empty() const { return leaving_.empty(); }
  void clear() { leaving_.clear(); }

  static constexpr Time kLinger = 200 * kMillisecond;
  static constexpr std::size_t kMaxLingering = 256;

 private:
  struct Leaving {
    std::unique_ptr<Connection> connection;
    Time until;
  };
  std::vector<Leaving> leaving_;  // oldest first
};

}  // namespace fairway::control
