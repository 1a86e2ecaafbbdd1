#pragma once

#include <cstdint>

#include "control/bodies.h"
#include "core/time.h"

namespace fairway::control {

inline constexpr Time kMinTimeout = 50 * kMillisecond;
inline constexpr Time kMaxTimeout = 3600 * kSecond;

// Failure detection for one peer. A value; it has no clock of its own.
//
// Each side sends a heartbeat every quarter of the shorter of the two timeouts. A peer is dead when nothing valid
// arrives from it for `timeout`. It is also dead when its workers are stuck: four heartbeats in a row, spanning three
// quarters of the timeout, report queued work and the same step count.
class Keepalive {
 public:
  Keepalive(Time now, Time our_timeout, Time their_timeout);

  void heard(Time now) { last_heard_ = now; }
  // This process was stopped for `late`; that time does not count against the peer.
  void allow_for_pause(Time now, Time late);
  // True when the peer's workers are stuck.
  bool on_beat(const Beat& beat);
  void restarted() { same_beats_ = 0; }  // a new connection replaced the old one

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
