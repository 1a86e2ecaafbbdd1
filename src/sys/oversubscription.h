#pragma once

#include <atomic>
#include <cstddef>

#include <sched.h>

#include "core/time.h"
#include "sys/fd.h"

namespace fairway::sys {

// CPUs that this process may use, however many the machine may have. `ask` has ::sched_getaffinity's form.
unsigned usable_cores(int (*ask)(pid_t, std::size_t, cpu_set_t*) = ::sched_getaffinity);

// Whether the host has more runnable threads than this process has cores; then no thread should spin. Any thread. The
// answer is sampled from the count of runnable threads in /proc/loadavg, only on demand and at most every 10 ms (about
// 5 us each).
class Oversubscription {
 public:
  Oversubscription();
  bool detected(Time now);
  [[nodiscard]] unsigned cores() const { return cores_; }  // that this process might use when this was made

  static constexpr Time kSampleEvery = 10 * kMillisecond;

 private:
  bool sample() const;

  const Fd loadavg_;  // empty where /proc is not mounted: never oversubscribed
  const unsigned cores_;
  std::atomic<Time> next_sample_{0};
  std::atomic<bool> detected_{false};
};

}  // namespace fairway::sys
