#include "control/keepalive.h"

#include <algorithm>

namespace fairway::control {

Keepalive::Keepalive(Time now, Time our_timeout, Time their_timeout)
    : timeout_(std::clamp(our_timeout, kMinTimeout, kMaxTimeout)),
      interval_(std::min(timeout_, std::clamp(their_timeout, kMinTimeout, kMaxTimeout)) / 4),
      last_heard_(now) {
  beat_sent(now);
}

void Keepalive::allow_for_pause(Time now, Time late) {
  last_heard_ = std::min(now, after(last_heard_, late));
}

bool Keepalive::on_beat(const Beat& beat) {
  constexpr std::uint32_t kStuckBeats = 4;
  if (!beat.queued) {
    same_beats_ = 0;
  } else if (same_beats_ == 0 || beat.steps != steps_) {
    same_beats_ = 1;
    steps_ = beat.steps;
  } else {
    ++same_beats_;
  }
  return same_beats_ >= kStuckBeats;
}

// Heartbeats fall on multiples of the interval, so that all sessions share one wake-up.
void Keepalive::beat_sent(Time now) {
  next_beat_ = (now / interval_ + 1) * interval_;
}

}  // namespace fairway::control
