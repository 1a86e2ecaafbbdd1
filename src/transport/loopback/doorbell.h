#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include "core/gates.h"

namespace fairway::transport::loopback {

// Wakes a transport's worker when it sleeps. The transport arms and removes it; its peers ring it from their threads.
class Doorbell {
 public:
  // Owner: once, before anyone rings.
  void attach(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }

  // Peers: after publishing work. One system call if the owner sleeps, else a fence and a load.
  void ring() {
    if (!gate_.claim_wake()) return;
    std::lock_guard lock(mutex_);
    if (wake_) wake_();
  }

  // Owner: arm() before it checks for work for the last time; disarm() if it finds some, or wakes up.
  void arm() { gate_.announce(); }
  void disarm() { gate_.awake(); }
  // Owner: afterwards `wake` is not running and is not called again.
  void remove() {
    std::lock_guard lock(mutex_);
    wake_ = nullptr;
  }

 private:
  SleepGate gate_;
  std::mutex mutex_;  // guards wake_ against remove(); taken only to wake a sleeper
  std::function<void()> wake_;
};

}  // namespace fairway::transport::loopback
