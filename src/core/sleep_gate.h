#pragma once

#include <cstdint>

#include "core/atomics.h"

namespace fairway {

// How one consumer sleeps without losing a wake-up, and how producers skip the system call while it is awake.
//
//   consumer (one thread)                      producer (any thread)
//     gate.announce();                           publish the work (push to a queue, set a flag)
//     if (work is there) { gate.awake(); ... }   if (gate.claim_wake()) wake in the kernel
//     else { sleep in the kernel; gate.awake(); }
//
// The kernel's wake-up must stick when it comes before the sleep: an eventfd, or a futex wait on word() while it holds
// kAsleep (claim_wake() changes it). A wake-up may come although the consumer found the work itself: sleeps return
// early.
//
// This is Dekker's handshake: each side writes its own word, then reads the other's. Acquire and release allow both
// sides to read the old value (on x86 too: a store waits in the store buffer while the next load runs), and the
// consumer would sleep on work. A sequentially consistent fence between write and read on both sides forbids exactly
// that.
template <class Atomics = StdAtomics>
class BasicSleepGate {
 public:
  static constexpr std::uint32_t kAwake = 0;
  static constexpr std::uint32_t kAsleep = 1;

  // Consumer: about to sleep. Look once more at every source of work after this.
  void announce() {
    word_.store(kAsleep, std::memory_order_relaxed);
    Atomics::fence(std::memory_order_seq_cst);
  }

  // Consumer: not sleeping after all, or awake again. Relaxed: whoever reads kAsleep late wakes once too often.
  void awake() { word_.store(kAwake, std::memory_order_relaxed); }

  // Producer, after publishing. True for exactly one producer per announce(): it must wake the consumer. Costs a fence
  // and a load of a line that nobody writes while the consumer is awake.
  bool claim_wake() {
    Atomics::fence(std::memory_order_seq_cst);
    if (word_.load(std::memory_order_relaxed) != kAsleep) return false;
    // Relaxed: the work itself synchronizes through where it was published.
    return word_.exchange(kAwake, std::memory_order_relaxed) == kAsleep;
  }

  // For a futex: sleep while it holds kAsleep.
  typename Atomics::template Atomic<std::uint32_t>& word() { return word_; }

 private:
  alignas(kCacheLine) typename Atomics::template Atomic<std::uint32_t> word_{kAwake};
};

using SleepGate = BasicSleepGate<>;

}  // namespace fairway
