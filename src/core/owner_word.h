#pragma once

#include "core/atomics.h"

namespace fairway {

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
