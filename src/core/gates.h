#pragma once

#include <cstdint>

#include "core/atomics.h"

// Words between one owner and other threads: who sleeps and must be woken, and whose turn it is.
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

// A flag that wakes threads sleeping on a kernel counter (an eventfd) until it is read. Any thread may set or clear it.
// The counter is written only while someone may be sleeping on it.
//
//   setter                                       sleeper
//     publish the work                             gate.clear(read the counter)
//     if (gate.set()) write 1 to the counter       if (work is there) { take it; ... }
//                                                  if (!gate.is_set()) sleep until the counter is readable
//
// Each set() after a clear() writes at most once, and each write is read once. So a sleeper that takes all available
// work wakes at most once per set(). `pending_writes_` counts writes that were announced and not read yet; it rises
// before the write. A clear() between the announcement and the write reads nothing and leaves the count, so the next
// clear() reads again. A plain flag raised after the write would not do: while the writer is preempted, clear() would
// skip a readable counter, and the sleeper would wake for nothing again and again and keep the writer off its core.
//
// No wake-up is lost: the setter announces and then looks for sleepers; the sleeper registers and then looks at the
// flag. Both are sequentially consistent, so one of them sees the other.
template <class Atomics = StdAtomics>
class BasicSignalGate {
 public:
  // True: the caller must now write 1 to the counter.
  bool set() {
    if (set_.exchange(true, std::memory_order_seq_cst)) return false;
    return sleepers_.load(std::memory_order_seq_cst) != 0 && owe();
  }
  // `read` empties the counter and returns its value. Look at every source of work after this.
  template <class Read>
  void clear(Read read) {
    if (pending_writes_.load(std::memory_order_relaxed) != 0) {
      const std::uint64_t count = read();
      if (count != 0) pending_writes_.fetch_sub(count, std::memory_order_relaxed);
    }
    if (set_.load(std::memory_order_relaxed)) set_.exchange(false, std::memory_order_acquire);
  }

  // Registers a sleeper: until leave(), set() asks for writes to the counter. If is_set(), do not sleep.
  void enter() { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  [[nodiscard]] bool is_set() const { return set_.load(std::memory_order_seq_cst); }
  void leave() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  // Registers a sleeper for ever, for a descriptor whose sleepers cannot be seen. True: the flag is set, and the caller
  // must write 1.
  bool enter_for_good() {
    enter();
    return is_set() && owe();
  }

 private:
  bool owe() {
    pending_writes_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  typename Atomics::template Atomic<bool> set_{false};
  typename Atomics::template Atomic<std::uint64_t> pending_writes_{0};
  typename Atomics::template Atomic<std::uint64_t> sleepers_{0};
};

using SignalGate = BasicSignalGate<>;

// For something that has one owner thread and that others may now and then use in the owner's place, between two of its
// turns. Whoever has taken the word has the whole of it, and what was done before is seen. Visitors are brief, and give
// way to an owner that waits: once it has failed to take the word, no visitor begins until it has.
template <class Atomics = StdAtomics>
class BasicOwnerWord {
 public:
  // The owner. False: a visitor has it; try again soon.
  bool take() {
    // Acquire: what the last one did in its turn is seen. Release, in leave(), pairs with it.
    if (held_.exchange(true, std::memory_order_acquire)) {
      wanted_.store(true, std::memory_order_relaxed);  // a hint: a visitor that misses it is one more before the owner
      return false;
    }
    if (wanted_.load(std::memory_order_relaxed)) wanted_.store(false, std::memory_order_relaxed);
    return true;
  }
  // Any other thread. False: somebody has it, or the owner waits for it.
  bool visit() {
    if (wanted_.load(std::memory_order_relaxed) || held_.load(std::memory_order_relaxed)) return false;
    return !held_.exchange(true, std::memory_order_acquire);
  }
  void leave() { held_.store(false, std::memory_order_release); }  // after either

 private:
  alignas(kCacheLine) typename Atomics::template Atomic<bool> held_{false};
  typename Atomics::template Atomic<bool> wanted_{false};
};

using OwnerWord = BasicOwnerWord<>;

}  // namespace fairway
