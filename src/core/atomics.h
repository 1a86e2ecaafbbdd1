#pragma once

#include <atomic>
#include <cstddef>

namespace fairway {

// What two threads write often is kept this far apart. 64 on x86-64 and on the Arm servers we know; not
// std::hardware_destructive_interference_size, whose value may differ between two compilations of one program.
inline constexpr std::size_t kCacheLine = 64;

// The atomics that the lock-free containers of core are written against. They take such a policy so that tests/model
// can put a scheduling point at each operation and explore every interleaving of the very code that runs in production.
struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;

  // Decides who wakes whom, or whether a seqlock's reader retries; data is never handed over by a fence alone here, so
  // that ThreadSanitizer, which does not model fences, reports nothing false.
  static void fence(std::memory_order order) { std::atomic_thread_fence(order); }
};

}  // namespace fairway
