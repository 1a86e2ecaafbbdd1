#pragma once

#include <atomic>

#include "core/time.h"
#include "sys/fd.h"

namespace fairway::sys {

// Whether more threads of this host want to run than this process has cores: then nobody should spin. Any thread; the
// answer is sampled from /proc/loadavg's count of runnable threads at most every 10 ms (about 5 us each), and only
// while somebody asks.
class Crowd {
 public:
  Crowd();
  bool crowded(Time now);

  static constexpr Time kSampleEvery = 10 * kMillisecond;

 private:
  bool sample() const;

  const Fd loadavg_;  // empty where /proc is not mounted: never crowded
  const unsigned cores_;
  std::atomic<Time> next_sample_{0};
  std::atomic<bool> crowded_{false};
};

}  // namespace fairway::sys
