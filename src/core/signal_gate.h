#pragma once

#include <cstdint>

#include "core/atomics.h"

namespace fairway {

// A flag that wakes those who sleep on a counter of the kernel's (an eventfd) until it is read. Any thread sets, any
// thread clears; the counter is written only while somebody may sleep on it.
//
//   who sets                                     who sleeps
//     publish the work                             gate.clear(read the counter)
//     if (gate.set()) write 1 to the counter       if (work is there) { take it; ... }
//                                                  if (!gate.is_set()) sleep until the counter is readable
//
// Each set() after a clear() writes once at most, and each write is read once: so a sleeper that takes all work there
// is wakes once for each set(), at most. `owed_` counts the writes announced and not yet read, before each is made. A
// clear() that comes between the announcement and the write reads nothing and leaves the debt, and the next one looks
// again. A flag in its place, raised after the write, would let clear() pass over a readable counter for as long as the
// writer is kept off its core, and the sleeper would wake for nothing, again and again, and keep it off.
//
// No wake-up is lost: who sets announces, then looks for sleepers; who sleeps counts itself, then looks at the flag,
// both sequentially consistent, so one of them sees the other.
template <class Atomics = StdAtomics>
class BasicSignalGate {
 public:
  // True: the caller must write 1 to the counter now.
  bool set() {
    if (set_.exchange(true, std::memory_order_seq_cst)) return false;
    return sleepers_.load(std::memory_order_seq_cst) != 0 && owe();
  }
  // `read` empties the counter and says how much was in it. Look at every source of work after this.
  template <class Read>
  void clear(Read read) {
    if (owed_.load(std::memory_order_relaxed) != 0) {
      const std::uint64_t count = read();
      if (count != 0) owed_.fetch_sub(count, std::memory_order_relaxed);
    }
    if (set_.load(std::memory_order_relaxed)) set_.exchange(false, std::memory_order_acquire);
  }

  // About to sleep: until leave() the counter is written. is_set(): do not sleep.
  void enter() { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  [[nodiscard]] bool is_set() const { return set_.load(std::memory_order_seq_cst); }
  void leave() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }
  // Enters for good, as one that sleeps where nobody sees it. True: it is set, and the caller must write 1.
  bool enter_for_good() {
    enter();
    return is_set() && owe();
  }

 private:
  bool owe() {
    owed_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  typename Atomics::template Atomic<bool> set_{false};
  typename Atomics::template Atomic<std::uint64_t> owed_{0};
  typename Atomics::template Atomic<std::uint64_t> sleepers_{0};
};

using SignalGate = BasicSignalGate<>;

}  // namespace fairway
