#pragma once

#include <algorithm>
#include <cstdint>

#include "core/time.h"

namespace fairway::engine {

// The clock for timeouts against a peer's engine. It counts only time in which both engines can act: an engine with
// Progress::caller does nothing while its caller computes, yet is not frozen. So the clock stops while this engine's
// caller is away, and against a peer of that kind it advances only with heartbeats that show new steps. Whether such a
// peer lives is decided by control, whose thread answers in any case. Owner: the peer's worker.
class PeerClock {
 public:
  PeerClock(bool by_caller, Time now) : by_caller_(by_caller), counted_(now), latest_(now), heard_(now) {}

  // When something begins to wait; never earlier than what was given before.
  Time start(Time now) {
    const Time still = by_caller_ ? now - std::min(now, heard_) : 0;  // since the last heartbeat: not counted yet
    return latest_ = std::max(latest_, passed(now) + still);
  }
  // How far the clock has come.
  [[nodiscard]] Time passed(Time now) const { return by_caller_ ? counted_ : now - std::min(now, away_); }

  [[nodiscard]] bool over(Time since, Time bound, Time now) const { return passed(now) >= after(since, bound); }
  // When to look again, by the worker's clock: it is not over before.
  [[nodiscard]] Time look_at(Time since, Time bound, Time now) const {
    const Time end = after(since, bound);
    return end == kNever ? kNever : after(now, end - std::min(end, passed(now)));
  }

  // A heartbeat of the peer, at that time.
  void heard(std::uint64_t steps, Time at) {
    if (at > heard_) {
      if (steps != steps_) counted_ += at - heard_;
      heard_ = at;
    }
    steps_ = steps;
  }
  // This engine's caller did not step it meanwhile.
  void was_away(Time from, Time to) {
    away_ += to - from;
    heard_ = std::max(heard_, to);
  }

 private:
  const bool by_caller_;
  Time counted_;  // by_caller_
  Time latest_;
  Time heard_;
  Time away_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace fairway::engine
