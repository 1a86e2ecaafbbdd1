#pragma once

#include <cstdint>

#include "core/atomics.h"

namespace fairway {

// Lets one consumer sleep without losing a wake-up, and lets producers skip the system call while it is awake.
//
//   consumer (one thread)                      producer (any thread)
//     gate.announce();                           publish the work (push to a queue, set a flag)
//     if (work is there) { gate.awake(); ... }   if (gate.claim_wake()) wake in the kernel
//     else { sleep in the kernel; gate.awake(); }
//
// The kernel wake-up must persist when it comes before the sleep: use an eventfd, or a futex wait on word() while it
// holds kAsleep (claim_wake() changes it). A wake-up may come although the consumer found the work itself; then its
// next sleep returns early.
//
// This is Dekker's algorithm: each side writes its own word, then reads the other's. With acquire and release alone
// both sides may read the old value (on x86 too: a store waits in the store buffer while the next load runs), and the
// consumer would sleep although there is work. A sequentially consistent fence between write and read on both sides
// forbids exactly that.
template <class Atomics = StdAtomics>
class BasicSleepGate {
 public:
  static constexpr std::uint32_t kAwake = 0;
  static constexpr std::uint32_t kAsleep = 1;

  // Consumer: about to sleep. Check every source of work once more after this.
  void announce() {
    word_.store(kAsleep, std::memory_order_relaxed);
    Atomics::fence(std::memory_order_seq_cst);
  }

  // Consumer: not going to sleep, or awake again. Relaxed: a producer that still reads kAsleep causes one spurious
  // wake-up.
  void awake() { word_.store(kAwake, std::memory_order_relaxed); }

  // Producer, after publishing the work. Returns true to exactly one producer per announce(), which must wake the
  // consumer. Costs a fence and a load of a cache line that nobody writes while the consumer is awake.
  bool claim_wake() {
    Atomics::fence(std::memory_order_seq_cst);
    if (word_.load(std::memory_order_relaxed) != kAsleep) return false;
    // Relaxed: the queue that carries the work synchronizes it.
    return word_.exchange(kAwake, std::memory_order_relaxed) == kAsleep;
  }

  // For a futex: the consumer sleeps while this holds kAsleep.
  typename Atomics::template Atomic<std::uint32_t>& word() { return word_; }

 private:
  alignas(kCacheLine) typename Atomics::template Atomic<std::uint32_t> word_{kAwake};
};

using SleepGate = BasicSleepGate<>;

}  // namespace fairway
