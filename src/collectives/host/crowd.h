#pragma once

#include <chrono>
#include <thread>

#include "collectives/clock.h"

namespace fairway::collectives {

// Notices that other threads run on this one's core though another core may be idle: the kernel leaves threads that
// give a core to each other where they are, for seconds. Who sleeps instead is woken on an idle core, if there is one.
class Crowd {
 public:
  // Gives the core away, to whom the kernel likes.
  void yield() {
    const Time before = Clock::now();
    std::this_thread::yield();
    const Time now = Clock::now();
    shared_ = now - before > kAlone ? shared_ + 1 : 0;
    if (shared_ < kInRow || now < next_) return;
    next_ = now + kPause;
    leaves_ = true;
  }
  // Whether to sleep now; once each time that it was noticed.
  [[nodiscard]] bool leaves() {
    const bool now = leaves_;
    leaves_ = false;
    return now;
  }

 private:
  static constexpr std::chrono::microseconds kAlone{1};  // a yield to which no other thread runs takes less
  static constexpr int kInRow = 8;
  static constexpr std::chrono::milliseconds kPause{1};  // where all cores are busy, sleeping gains nothing

  int shared_ = 0;  // yields in a row to which another thread ran
  Time next_{};     // not before
  bool leaves_ = false;
};

}  // namespace fairway::collectives
