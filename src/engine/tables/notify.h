#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "fairway/engine.h"
#include "fairway/request.h"

#include "core/counter_ranges.h"
#include "core/slot_pool.h"
#include "engine/waiting.h"

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

// Notifications of kind `event`, from workers to whoever polls. Never full: each peer has credits out of the capacity,
// and each notification holds one until it is polled.
class NotificationQueue {
 public:
  // Room for `shared` beyond kLeast for each of `peers`. `spaces`, if any, get what comes with their immediates.
  NotificationQueue(std::uint32_t peers, std::uint32_t shared, CounterSpaces* spaces = nullptr)
      : reserve_(peers * kLeast), left_(reserve_ + shared), queue_(reserve_ + shared), spaces_(spaces) {}
  static constexpr std::uint32_t room(std::uint32_t peers, std::uint32_t shared) { return peers * kLeast + shared; }

  // Worker, when a peer connects: the credits that it gets. kLeast are reserved for each peer; up to a quarter of the
  // shared rest comes on top.
  std::uint32_t grant(std::uint32_t wanted);
  void give_back(std::uint32_t granted);  // worker, once the peer is gone and its notifications were polled

  bool push(Notification&& notification) {  // worker
    if (spaces_ != nullptr)
      if (CounterSpaces::Space* const space = spaces_->of(notification.immediate)) {
        spaces_->push(*space, std::move(notification));
        return true;
      }
    return queue_.push(std::move(notification));
  }
  bool pop(Notification& notification) { return queue_.pop(notification); }  // any thread
  [[nodiscard]] bool empty() const { return queue_.empty(); }

 private:
  static constexpr std::uint32_t kLeast = 4;
  const std::uint32_t reserve_;
  std::atomic<std::uint32_t> left_;
  PolledQueue<Notification> queue_;
  CounterSpaces* const spaces_;
};

// How often each immediate value was notified. Workers add, anyone reads; lock-free but for the first of each value.
class CounterTable {
 public:
  explicit CounterTable(std::uint32_t capacity, CounterSpaces* spaces = nullptr);  // as of NotificationQueue
  // False when `capacity` different values are counted already.
  bool add(std::uint32_t immediate, std::uint64_t count = 1);
  [[nodiscard]] std::uint64_t read(std::uint32_t immediate) const;
  // A value from `first` to `last` that was counted here, outside all spaces; reads the whole table.
  [[nodiscard]] std::optional<std::uint32_t> any_in(std::uint32_t first, std::uint32_t last) const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> key{0};  // immediate + 1; 0: free
    std::atomic<std::uint64_t> count{0};
  };
  [[nodiscard]] std::size_t first_slot(std::uint32_t immediate) const;
  [[nodiscard]] Slot* find(std::uint32_t immediate) const;  // its slot, or the free one where it would be
  Slot* take(std::uint32_t immediate);                      // null: the table is full

  const std::uint32_t capacity_;
  std::size_t mask_;
  std::unique_ptr<Slot[]> slots_;
  std::mutex taking_;  // guards used_, and who takes a free slot
  std::uint32_t used_ = 0;
  CounterSpaces* const spaces_;
};

// How many notifications of each peer were polled, which returns its credits. Nothing is counted for a peer that is
// gone. Control's thread opens, workers close, callers count; lock-free.
class PolledCounts {
 public:
  // `first`: where every count begins, so that a test need not count to 2^32.
  explicit PolledCounts(std::uint32_t peers, std::uint32_t first = 0)
      : words_(new std::atomic<std::uint64_t>[peers]()), first_(first) {}

  void open(PeerId peer) {  // before anything of it can be polled
    words_[peer.slot].store(std::uint64_t{peer.generation} << 32 | first_, std::memory_order_relaxed);
  }
  bool add(PeerId peer) {  // false: the peer is gone
    std::uint64_t word = words_[peer.slot].load(std::memory_order_relaxed);
    while (word >> 32 == peer.generation)
      if (words_[peer.slot].compare_exchange_weak(word, counted(word), std::memory_order_relaxed)) return true;
    return false;
  }
  [[nodiscard]] std::optional<std::uint32_t> of(PeerId peer) const {  // none: the peer is gone
    const std::uint64_t word = words_[peer.slot].load(std::memory_order_relaxed);
    return word >> 32 == peer.generation ? std::optional(static_cast<std::uint32_t>(word)) : std::nullopt;
  }
  std::uint32_t close(PeerId peer) {  // how many were counted; add() and of() know it no longer
    return static_cast<std::uint32_t>(words_[peer.slot].exchange(0, std::memory_order_relaxed));
  }

 private:
  // One more, modulo 2^32: the carry must not reach the generation.
  static std::uint64_t counted(std::uint64_t word) {
    return (word & ~std::uint64_t{0xffffffff}) | static_cast<std::uint32_t>(word + 1);
  }

  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;  // by slot: generation << 32 | count; generation 0: gone
  const std::uint32_t first_;
};

}  // namespace fairway::engine
