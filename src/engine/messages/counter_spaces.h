#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "fairway/engine.h"

#include "core/counter_ranges.h"
#include "core/slot_pool.h"
#include "engine/polled_queue.h"

namespace fairway::engine {

class CounterTable;

// The ranges of immediates that make_counters() gave: what arrives with one of them is counted, or queued, for its
// owner alone. Workers add, callers read and poll, without a lock; making and releasing take one. While there is no
// space, all that asks costs one load. A space's memory is kept for the next one, so who asks too late reads no freed
// memory.
class CounterSpaces {
 public:
  static constexpr std::uint32_t kMost = 64;
  class Space;

  // Room for so many counters in all of them, and for so many events that nobody has polled.
  CounterSpaces(std::uint32_t counters, std::uint32_t events);
  ~CounterSpaces();

  // ---- any thread; `others` counts what is in no space ----
  Result<CounterSpace> make(std::uint32_t count, std::optional<std::uint32_t> first, const CounterTable& others);
  // In this order: nothing more arrives there once each worker has begun another step; take what is left; free it.
  Result<Space*> retire(CounterSpaceId id);
  void free(Space& space);

  [[nodiscard]] Space* of(std::uint32_t immediate) const {  // null: in none
    return used_.load(std::memory_order_acquire) == 0 ? nullptr : search(immediate);
  }
  [[nodiscard]] Space* find(CounterSpaceId id) const;  // null: there is none of that id
  // Communicators take some, too.
  [[nodiscard]] const std::shared_ptr<CounterRanges>& ranges() const { return ranges_; }
  [[nodiscard]] std::uint64_t read(const Space& space, std::uint32_t immediate) const;
  bool pop(Space& space, CounterSpaceId id, Notification& out);
  bool pop_left(Space& space, Notification& out);  // of one that was retired
  [[nodiscard]] static bool has_events(const Space& space);

  // ---- workers ----
  void add(Space& space, std::uint32_t immediate, std::uint64_t count);
  void push(Space& space, Notification&& notification);  // its credit reserves a slot

 private:
  [[nodiscard]] Space* search(std::uint32_t immediate) const;
  [[nodiscard]] std::optional<std::uint32_t> room_for(std::uint32_t count) const;  // where in counts_
  Status take_given(std::uint32_t first, std::uint32_t count, const CounterTable& others);
  std::optional<std::uint32_t> take_free(std::uint32_t count, const CounterTable& others);  // where; none: none is free
  // With `given`, which is taken: there.
  Result<CounterSpace> make_taken(std::uint32_t count, std::optional<std::uint32_t> given, const CounterTable& others);
  void take(std::uint32_t slot, Notification& out);

  const std::uint32_t counters_, events_;
  std::atomic<std::uint32_t> used_{0};
  const std::shared_ptr<CounterRanges> ranges_ = std::make_shared<CounterRanges>();
  const std::unique_ptr<Space[]> spaces_;
  const StdAtomics::Zeroed<std::atomic<std::uint64_t>> counts_;
  std::unique_ptr<SlotPool<Notification>> notifications_;  // from the first space on
  mutable std::mutex mutex_;                               // guards who makes, retires or frees one
  std::uint32_t next_first_;                               // of those whose maker names none
};

class CounterSpaces::Space {
 public:
  [[nodiscard]] bool has(std::uint32_t immediate) const {
    const std::uint64_t range = range_.load(std::memory_order_acquire);
    return immediate >= static_cast<std::uint32_t>(range >> 32) && immediate <= static_cast<std::uint32_t>(range);
  }

 private:
  friend class CounterSpaces;
  static constexpr std::uint64_t kNothing = std::uint64_t{1} << 32;  // from 1 to 0
  enum class Stage : std::uint8_t { free, used, retired };
  [[nodiscard]] std::uint32_t first() const {
    return static_cast<std::uint32_t>(range_.load(std::memory_order_acquire) >> 32);
  }

  std::atomic<std::uint64_t> range_{kNothing};  // first << 32 | last
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<std::uint32_t> place_{0};  // of its first count
  std::uint32_t count_ = 0;              // guarded by mutex_, as the next
  Stage stage_ = Stage::free;
  std::unique_ptr<PolledQueue<std::uint32_t>> events_;  // slots of notifications_; from the first use on
};

}  // namespace fairway::engine
