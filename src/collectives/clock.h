#pragma once

#include <atomic>
#include <chrono>
#include <ctime>

#include "fairway/engine.h"

// The time of deadlines. This module stands on the public API, which has no clock.
namespace fairway::collectives {

using Time = std::chrono::steady_clock::time_point;

struct Clock {
  static Time now() {
    const auto instead = other.load(std::memory_order_relaxed);
    return instead != nullptr ? instead() : real_now();
  }
  static bool is_simulated() { return other.load(std::memory_order_relaxed) != nullptr; }
  static Time real_now() { return std::chrono::steady_clock::now(); }

  // The simulator's, in whose ranks time is virtual. It stays for the process's life.
  static inline constinit std::atomic<Time (*)()> other{nullptr};
};

inline Time after(Time start, Timeout timeout) {
  return timeout >= std::chrono::duration_cast<Timeout>(Time::max() - start) ? Time::max() : start + timeout;
}
// To some milliseconds, which takes less time than to the nanosecond; of a simulated rank the virtual time.
inline Time coarse_now() {
  if (Clock::is_simulated()) return Clock::now();
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Time(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}
// Until then, 0 if it has passed.
inline Timeout until(Time then) {
  if (then == Time::max()) return kForever;
  const auto left = std::chrono::duration_cast<Timeout>(then - Clock::now());
  return left.count() > 0 ? left : Timeout{0};
}

}  // namespace fairway::collectives
