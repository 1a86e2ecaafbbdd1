#pragma once

#include <atomic>
#include <thread>

namespace fairway::nccl {

// For a few lines that two threads seldom enter at once. NCCL's thread and the one that stands in for it take it for
// each message, and a mutex would put who finds it taken to sleep, whom to wake costs more than fifty of those lines.
class ShortLock {
 public:
  void lock() {
    for (int looks = 1; taken_.exchange(true, std::memory_order_acquire); ++looks)
      while (taken_.load(std::memory_order_relaxed))
        if (looks++ % kLooks == 0) std::this_thread::yield();  // its holder may have lost its processor
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr int kLooks = 256;
  std::atomic<bool> taken_{false};
};

}  // namespace fairway::nccl
