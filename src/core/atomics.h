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

  static void fence(std::memory_order order) {
// ThreadSanitizer does not model fences and GCC says so at each use. No data is handed over by a fence alone here:
// fences decide who wakes whom, or whether a seqlock's reader (whose fields are atomics) retries.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"
#endif
    std::atomic_thread_fence(order);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
  }
};

}  // namespace fairway
