#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

#include "fairway/request.h"

#include "core/queues.h"

namespace fairway::engine {

// A queue from workers, which push without a lock, to callers of the API, which share a lock and take it only if there
// is something. Polling an empty queue costs one load.
template <class T>
class PolledQueue {
 public:
  explicit PolledQueue(std::uint32_t capacity) : queue_(capacity) {}

  bool push(T&& value) {  // workers; false when full
    if (!queue_.push(std::move(value))) return false;
    pushed_.fetch_add(1, std::memory_order_seq_cst);
    return true;
  }
  bool pop(T& value) {  // any thread
    return pop_if(value, [] { return true; });
  }
  template <class Allowed>
  bool pop_if(T& value, const Allowed& allowed) {
    if (empty()) return false;
    std::lock_guard lock(consumers_);
    if (!allowed() || !queue_.pop(value)) return false;
    popped_.store(popped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }
  // Runs `act` while no thread is between allowed() and its pop.
  template <class Act>
  void while_nobody_pops(const Act& act) {
    std::lock_guard lock(consumers_);
    act();
  }
  // After a notice() this finds what was pushed before it. In the middle of a push it may say no: its notice follows.
  [[nodiscard]] bool empty() const {
    return pushed_.load(std::memory_order_seq_cst) == popped_.load(std::memory_order_relaxed);
  }

 private:
  MpscQueue<T> queue_;
  std::atomic<std::uint32_t> pushed_{0};  // counted after the push
  std::atomic<std::uint32_t> popped_{0};  // written under the lock
  std::mutex consumers_;                  // guards the popping end, among pollers
};

// Completions for poll(), by slot of the transfer. Never full: a slot is in it at most once. With Progress::caller who
// polls makes the step in which most transfers end: their completions go straight to where it wants them, unless an
// earlier one waits in the queue.
class CompletionQueue : public PolledQueue<std::uint32_t> {
 public:
  using PolledQueue::PolledQueue;

  // ---- whose turn it is to step the workers, around its step ----
  void offer(std::span<Completion> room) {
    room_ = room;
    filled_ = 0;
  }
  std::size_t filled() {  // of the room, which is the caller's own again
    room_ = {};
    return filled_;
  }
  // ---- within that step ----
  Completion* place() { return filled_ < room_.size() && empty() ? &room_[filled_++] : nullptr; }  // null: push it

 private:
  std::span<Completion> room_;
  std::size_t filled_ = 0;
};

}  // namespace fairway::engine
