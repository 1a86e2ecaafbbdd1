#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/time.h"

namespace fairway {

// Incoming connections, from accept until the peer has said who it is. Their number, their time and the rate of accepts
// are limited, so a peer without a token costs little and does not keep others out. A value; its owner's thread.
template <class Connection>
class PendingConnections {
 public:
  struct Limits {
    std::size_t most = 64;
    std::size_t per_poll = 0;                   // accepted at once
    Time hello_timeout = kSecond;               // time limit of the hello
    Time evictable = 0;                         // older ones make room: a peer sends its hello at once
    Time pause = 0;                             // after accepting per_poll
    Time when_full = 0;                         // no room for another; 0: until the oldest may make some
    Time after_exhaustion = 10 * kMillisecond;  // out of descriptors
  };
  enum class Found : unsigned char { one, unwanted, none, no_descriptor };

  explicit PendingConnections(const Limits& limits) : limits_(limits) {}

  // The number of accepts is over, or there is no room: accept none before. 0: the listener has no more.
  [[nodiscard]] Time paused_until() const { return paused_until_; }
  [[nodiscard]] bool empty() const { return all_.empty(); }

  // Accepts: `next` finds a connection, or says why not. `evict` is told of one that ends to make room.
  template <class Next, class Evict>
  void accept(Time now, Next next, Evict evict) {
    paused_until_ = 0;
    for (std::size_t i = 0; i < limits_.per_poll; ++i) {
      if (all_.size() == limits_.most) {
        const Time until = after(all_.front().since, limits_.evictable);
        if (now < until) return void(paused_until_ = limits_.when_full == 0 ? until : after(now, limits_.when_full));
        evict(all_.front().connection);
        all_.erase(all_.begin());
      }
      Connection connection;
      const Found found = next(connection);
      if (found == Found::none) return;
      if (found == Found::no_descriptor) return void(paused_until_ = after(now, limits_.after_exhaustion));
      if (found == Found::one) all_.push_back({std::move(connection), now});
    }
    paused_until_ = after(now, limits_.pause);
  }
  // `done` looks at each, and is told whether its time is over; true: it has what it wants of it.
  template <class Done>
  void look(Time now, Done done) {
    if (all_.empty()) return;
    std::erase_if(
        all_, [&](Pending& each) { return done(each.connection, now >= after(each.since, limits_.hello_timeout)); });
  }
  [[nodiscard]] Time next() const {  // look by then, even without a wake-up
    const Time next = paused_until_ != 0 ? paused_until_ : kNever;
    return all_.empty() ? next : std::min(next, after(all_.front().since, limits_.hello_timeout));
  }
  void clear() {
    all_.clear();
    paused_until_ = 0;
  }

 private:
  struct Pending {
    Connection connection;
    Time since = 0;
  };
  const Limits limits_;
  std::vector<Pending> all_;  // oldest first
  Time paused_until_ = 0;
};

}  // namespace fairway
