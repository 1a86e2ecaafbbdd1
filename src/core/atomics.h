#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

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

  // `count` of T, whose atomics are 0 and whose other members are not begun. The kernel gives the pages of a large
  // array when they are first touched, so what is never used costs nothing. Throws std::bad_alloc.
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  template <class T>
  using Zeroed = std::unique_ptr<T[], Free>;
  template <class T>
  static Zeroed<T> zeroed(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= alignof(std::max_align_t));
    void* const memory = std::calloc(count, sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return Zeroed<T>(static_cast<T*>(memory));
  }
};

// A hint: this thread writes to that cache line soon. Fetching the line to be written takes as long as some hundred
// instructions where another core has it, so ask ahead; it needs no valid address and changes nothing.
inline void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  // Compilers make a prefetch for reading of theirs, unless they are told of a newer processor. Older ones ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace fairway
