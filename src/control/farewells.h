#pragma once

#include <memory>
#include <vector>

#include "control/connection.h"

namespace fairway::control {

// Connections that are over but whose last words are still on the way. They are kept until the peer closes, at most 200
// ms and at most 256 of them: closing with bytes unread would make the system drop what was sent. Control's thread.
class Farewells {
 public:
  void add(std::unique_ptr<Connection> connection, Time now);
  Time step(Time now);
  bool empty() const { return leaving_.empty(); }
  void clear() { leaving_.clear(); }

  static constexpr Time kLinger = 200 * kMillisecond;
  static constexpr std::size_t kMost = 256;

 private:
  struct Leaving {
    std::unique_ptr<Connection> connection;
    Time until;
  };
  std::vector<Leaving> leaving_;  // the oldest first
};

}  // namespace fairway::control
