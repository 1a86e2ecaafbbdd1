#pragma once

#include <atomic>
#include <cstdint>

namespace fairway {

// What moving bytes cost this process. One thread writes; any thread reads.
struct CostCounters {
  std::atomic<std::uint64_t> system_calls{0}, copied_bytes{0};  // bytes copied besides the kernel's or device's copy
};

// By the thread that writes: a plain store, since no other comes between.
inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace fairway
