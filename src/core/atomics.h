#pragma once

#include <atomic>
#include <cstddef>

namespace fairway {

// Fields that different threads write often are kept this far apart to avoid false sharing. 64 bytes on x86-64 and on
// the Arm servers we know. Not std::hardware_destructive_interference_size, whose value may differ between two
// compilations of one program.
inline constexpr std::size_t kCacheLine = 64;

// The atomics policy of core's lock-free containers. tests/model passes another policy with a scheduling point at each
// operation, and so explores every interleaving of the production code.
struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;

  // Fences only decide who wakes whom, or whether a seqlock reader retries; no data is published by a fence alone. So
  // ThreadSanitizer, which does not model fences, gives no false reports.
  static void fence(std::memory_order order) { std::atomic_thread_fence(order); }
};

}  // namespace fairway
