#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "core/mpsc_queue.h"

namespace fairway::engine {

// From workers, who push without a lock, to the callers of the API, who take one among themselves and only when there
// is something: asking costs a load.
template <class T>
class PolledQueue {
 public:
  explicit PolledQueue(std::uint32_t capacity) : queue_(capacity) {}

  bool push(T&& value) {  // workers; false when full
    if (!queue_.push(std::move(value))) return false;
    waiting_.fetch_add(1, std::memory_order_seq_cst);
    return true;
  }
  bool pop(T& value) {  // any thread
    if (empty()) return false;
    std::lock_guard lock(consumers_);
    if (!queue_.pop(value)) return false;
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  // After a notice() this finds what was pushed before it.
  [[nodiscard]] bool empty() const { return waiting_.load(std::memory_order_seq_cst) == 0; }

 private:
  MpscQueue<T> queue_;
  std::atomic<std::uint32_t> waiting_{0};  // pushed, counted after the push, and not popped
  std::mutex consumers_;                   // guards the popping end, among pollers
};

// Completions for poll(), by slot of the transfer. Never full: a slot is in it at most once.
using CompletionQueue = PolledQueue<std::uint32_t>;

}  // namespace fairway::engine
