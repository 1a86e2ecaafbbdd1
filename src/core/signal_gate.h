#pragma once

#include <cstdint>

#include "core/atomics.h"

namespace fairway {

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

}  // namespace fairway
