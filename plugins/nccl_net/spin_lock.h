#pragma once

#include <atomic>
#include <thread>

namespace fairway::nccl {

// A spin lock for a few lines that two threads rarely enter at once. NCCL's thread and the progress thread take it for
// each message. A mutex would put a waiting thread to sleep, and waking it costs more than fifty times those lines.
class SpinLock {
 public:
  void lock() {
    for (int looks = 1; taken_.exchange(true, std::memory_order_acquire); ++looks)
      while (taken_.load(std::memory_order_relaxed))
        if (looks++ % kLooks == 0) std::this_thread::yield();  // the holder may have been preempted
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr int kLooks = 256;
  std::atomic<bool> taken_{false};
};

}  // namespace fairway::nccl
