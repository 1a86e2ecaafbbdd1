#pragma once

#include <cstdint>

#include "control/bodies.h"
#include "core/time.h"

namespace fairway::control {

inline constexpr Time kMinTimeout = 50 * kMillisecond;
inline constexpr Time kMaxTimeout = 3600 * kSecond;

// Whether one peer lives. A value; no clock of its own.
//
// Each side sends a heartbeat every quarter of the shorter of both timeouts. A peer is dead when nothing valid came
// from it for `timeout`, and when its workers stand still: four heartbeats in a row, which span three quarters of the
// timeout, say that work is queued and show the same count of steps.
class Keepalive {
 public:
  Keepalive(Time now, Time our_timeout, Time their_timeout);

  void heard(Time now) { last_heard_ = now; }
  // This process could not run for `late`: that is not held against the peer.
  void forgive(Time now, Time late);
  // True when the peer's workers count as stuck.
  bool on_beat(const Beat& beat);
  void restarted() { same_beats_ = 0; }  // the connection is new

  bool beat_due(Time now) const { return now >= next_beat_; }
  void beat_sent(Time now);
  Time next_beat() const { return next_beat_; }
  Time dead_at() const { return after(last_heard_, timeout_); }
  Time timeout() const { return timeout_; }
  Time interval() const { return interval_; }

 private:
  Time timeout_;
  Time interval_;
  Time last_heard_;
  Time next_beat_ = 0;
  std::uint64_t steps_ = 0;
  std::uint32_t same_beats_ = 0;
};

}  // namespace fairway::control
