#pragma once

#include <atomic>
#include <cstdint>

// Without other headers, so that tests/model can run it with atomics of its own.
namespace fairway::collectives {

struct SharedAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
  // It only decides who wakes whom; the words that carry messages are released and acquired by themselves.
  static void fence(std::memory_order order) { std::atomic_thread_fence(order); }
};

// A rank's word, in memory that the others have mapped: whom it waits for while it sleeps. Lets ranks that publish into
// each other's memory skip the system call while the other one is awake.
//
//   sleeper                                    publisher, of rank `self`
//     word.announce(peer);                       stores messages to any ranks, with release
//     if (it has come) { word.awake(); ... }     SleepWord::published();  // once for all of them
//     else { sleeps; word.awake(); }             if (word.claim(self)) wakes the sleeper
//
// The wake-up must persist when it comes before the sleep: here a counter of the engine grows, which the sleeper read
// before it announced. A wake-up may come although the sleeper found the message itself; its next sleep is short then.
//
// This is Dekker's algorithm, as in core's SleepGate: each side stores its own word, then reads the other's, with a
// sequentially consistent fence between.
template <class Atomics = SharedAtomics>
class BasicSleepWord {
 public:
  // Sleeper. Look once more after this.
  void announce(std::uint32_t peer) {
    word_.store(peer + 1, std::memory_order_relaxed);
    Atomics::fence(std::memory_order_seq_cst);
  }
  void awake() { word_.store(kAwake, std::memory_order_relaxed); }

  // Publisher, after what it has stored and before claim().
  static void published() { Atomics::fence(std::memory_order_seq_cst); }
  // True once for each announcement, to the rank that is waited for. A compare-exchange: meanwhile the sleeper may have
  // woken and announced that it waits for another rank, and that one must see it.
  bool claim(std::uint32_t self) {
    std::uint32_t seen = self + 1;
    return word_.load(std::memory_order_relaxed) == seen &&
           word_.compare_exchange_strong(seen, kAwake, std::memory_order_relaxed, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t kAwake = 0;

  typename Atomics::template Atomic<std::uint32_t> word_{kAwake};
};

using SleepWord = BasicSleepWord<>;

}  // namespace fairway::collectives
