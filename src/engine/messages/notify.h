#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "fairway/request.h"

#include "engine/messages/counter_spaces.h"
#include "engine/polled_queue.h"

namespace fairway::engine {

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

}  // namespace fairway::engine
