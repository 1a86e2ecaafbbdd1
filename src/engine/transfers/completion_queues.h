#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fairway/engine.h"

#include "engine/polled_queue.h"

namespace fairway::engine {

// One that make_queue() gave: completions for whoever polls it, by slot of the transfer. Every transfer that names it
// has a place in it from its submission until it is collected, so it is never full.
class NamedQueue {
 public:
  explicit NamedQueue(std::uint32_t capacity) : capacity_(capacity), slots_(capacity) {}

  // ---- who submits ----
  enum class Taken : std::uint8_t { yes, full, ended };
  Taken take_place(std::uint32_t generation);
  void give_back() { state_.fetch_sub(1, std::memory_order_relaxed); }  // it was not submitted, or was collected
  // ---- who ends a transfer; the caller then wakes told() ----
  void push(std::uint32_t slot) {
    (void)slots_.push(std::move(slot));
    told_.fetch_add(1, std::memory_order_release);
  }
  // ---- who polls: any thread ----
  bool pop(std::uint32_t generation, std::uint32_t& slot) {
    return slots_.pop_if(slot, [&] { return is(generation); });
  }
  [[nodiscard]] bool empty() const { return slots_.empty(); }
  [[nodiscard]] bool is(std::uint32_t generation) const {
    return static_cast<std::uint32_t>(state_.load(std::memory_order_acquire) >> 32) == generation;
  }
  std::atomic<std::uint32_t>& told() { return told_; }  // grows when there is a reason to look

 private:
  friend class CompletionQueues;
  static constexpr std::uint64_t kOne = std::uint64_t{1} << 32;  // of a generation

  const std::uint32_t capacity_;         // of slots_
  std::atomic<std::uint32_t> limit_{0};  // what its maker asked for
  std::atomic<std::uint64_t> state_{0};  // generation << 32 | places that are taken; an even generation: free
  std::atomic<std::uint32_t> told_{0};
  PolledQueue<std::uint32_t> slots_;
};

// The named queues of an engine. Making and ending them takes a lock, all else none. One that has ended is kept and
// made again, so that a poller of the past reads no freed memory.
class CompletionQueues {
 public:
  static constexpr std::uint32_t kMost = 64;

  Result<QueueId> make(std::uint32_t capacity);
  // Refused while transfers name it. The caller then wakes its told().
  Status end(QueueId id);
  // Any thread. Null: there is none of that id. It stays readable for as long as the engine, whatever it is by then.
  [[nodiscard]] NamedQueue* find(QueueId id) const {
    if (id.slot >= kMost || !id) return nullptr;
    NamedQueue* const queue = places_[id.slot].load(std::memory_order_acquire);
    return queue != nullptr && queue->is(id.generation) ? queue : nullptr;
  }
  // A place for a transfer that names it. Errors: not_found, queue_full.
  Status take_place(QueueId id, NamedQueue*& out) const;
  // Calls visit(queue) for each that is, or was.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& place : places_)
      if (NamedQueue* const queue = place.load(std::memory_order_acquire)) visit(*queue);
  }

 private:
  std::array<std::atomic<NamedQueue*>, kMost> places_{};
  std::mutex mutex_;  // guards all_, and who makes or ends one
  // Also those that a longer one has replaced: of one place at most one of each power of two.
  std::vector<std::unique_ptr<NamedQueue>> all_;
};

}  // namespace fairway::engine
