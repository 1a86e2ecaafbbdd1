#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include "core/sleep_gate.h"

namespace fairway::transport::loopback {

// Wakes a transport's worker when it sleeps. Shared by the transport, which arms and removes it, and by its peers,
// which ring it from their threads.
class Doorbell {
 public:
  // The owner, once, before anyone rings.
  void attach(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }

  // Peers, after publishing work: one system call when the owner sleeps, else a fence and a load.
  void ring() {
    if (!gate_.claim_wake()) return;
    std::lock_guard lock(mutex_);
    if (wake_) wake_();
  }

  // The owner, before its last look for work; disarm() when it found some or woke up.
  void arm() { gate_.announce(); }
  void disarm() { gate_.awake(); }
  // The owner: afterwards `wake` is not running and never called again.
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
