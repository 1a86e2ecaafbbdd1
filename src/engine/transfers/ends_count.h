#pragma once

#include <atomic>
#include <cstdint>

#include "core/atomics.h"

namespace fairway::engine {

// By which callers that wait for several transfers sleep on one word. Who ends a transfer stores that first,
// sequentially consistent, then calls noted(): while nobody watches, that is one load. A watcher begins, reads `ends`,
// looks at its transfers, sequentially consistent, and sleeps while `ends` holds what it read. Either it sees that the
// transfer has ended, or the one that ends it sees the watcher. Any thread. tests/model explores it.
template <class Atomics = StdAtomics>
class EndsCount {
 public:
  void begin() { watchers_.fetch_add(1, std::memory_order_seq_cst); }
  void end() { watchers_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t seen() const { return ends_.load(std::memory_order_acquire); }
  // True: somebody may sleep on the word, so wake it.
  [[nodiscard]] bool noted() {
    if (watchers_.load(std::memory_order_seq_cst) == 0) return false;
    // Who reads this sees what ended before: a processor may count before it has stored, unless told otherwise.
    ends_.fetch_add(1, std::memory_order_release);
    return true;
  }
  typename Atomics::template Atomic<std::uint32_t>& word() { return ends_; }

 private:
  typename Atomics::template Atomic<std::uint32_t> watchers_{0};
  typename Atomics::template Atomic<std::uint32_t> ends_{0};
};

}  // namespace fairway::engine
