#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/atomics.h"

// Bounded queues between threads.
namespace fairway {

// A bounded queue from one producer thread to one consumer thread, wait-free on both sides. It allocates only in its
// constructor.
//
// Algorithm: Lamport's ring with free-running indices. Each side caches the other's index and reads the shared one only
// when the cached one says full or empty. In steady state the two cores exchange no index per value (J. Giacomoni et
// al., FastForward, PPoPP 2008; called "cached indices" in E. Rigtorp's SPSCQueue).
template <class T, class Atomics = StdAtomics>
class SpscRing {
 public:
  // Holds at least `capacity` values, rounded up to a power of two.
  explicit SpscRing(std::size_t capacity)
      : mask_(std::bit_ceil(std::max<std::size_t>(capacity, 1)) - 1), cells_(new Cell[mask_ + 1]) {}
  // Neither side may be in use. Destroys the values that were not popped.
  ~SpscRing() {
    while (T* value = front()) take(value);
  }
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  // Producer. False when full: `value` is unchanged.
  bool push(T&& value) { return emplace(std::move(value)); }
  bool push(const T& value) { return emplace(value); }

  // Consumer. The oldest value, or null when empty. Valid until pop().
  T* front() {
    if (head_copy_ == tail_seen_) {
      tail_seen_ = tail_.load(std::memory_order_acquire);  // values before this index are constructed
      if (head_copy_ == tail_seen_) return nullptr;
    }
    return cells_[head_copy_ & mask_].value();
  }
  // Consumer. False when empty: `out` is unchanged.
  bool pop(T& out) {
    T* value = front();
    if (!value) return false;
    out = std::move(*value);
    take(value);
    return true;
  }
  // Consumer. Drops the oldest value, which front() returned.
  bool pop() {
    T* value = front();
    if (value) take(value);
    return value != nullptr;
  }

  // Any thread. Exact for a side that is idle meanwhile, an estimate for everyone else.
  std::size_t size() const {
    // The head first, with acquire: the tail read next is then at least as new as the one this head was derived from.
    const std::size_t head = head_.load(std::memory_order_acquire);
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    return std::min(tail - head, capacity());
  }
  bool empty() const { return size() == 0; }
  std::size_t capacity() const { return mask_ + 1; }

 private:
  struct Cell {
    T* value() { return reinterpret_cast<T*>(storage); }
    alignas(T) std::byte storage[sizeof(T)];
  };

  template <class Value>
  bool emplace(Value&& value) {
    if (tail_copy_ - head_seen_ == capacity()) {
      head_seen_ = head_.load(std::memory_order_acquire);  // the consumer destroyed the values before this index
      if (tail_copy_ - head_seen_ == capacity()) return false;
    }
    std::construct_at(cells_[tail_copy_ & mask_].value(), std::forward<Value>(value));
    tail_.store(++tail_copy_, std::memory_order_release);  // publishes the value
    return true;
  }
  void take(T* value) {
    std::destroy_at(value);
    head_.store(++head_copy_, std::memory_order_release);  // frees the cell
  }

  const std::size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  // The producer's cache line: its index, a private copy of it, and the last index it read from the other side.
  alignas(kCacheLine) typename Atomics::template Atomic<std::size_t> tail_{0};
  std::size_t tail_copy_ = 0;
  std::size_t head_seen_ = 0;
  // The consumer's cache line.
  alignas(kCacheLine) typename Atomics::template Atomic<std::size_t> head_{0};
  std::size_t head_copy_ = 0;
  std::size_t tail_seen_ = 0;
};

// A bounded queue from any thread to one consumer, the owner thread. Other threads send it commands this way. It
// allocates only in its constructor. Values from one producer come out in the order it pushed them.
//
// push() is lock-free. A producer that is preempted between claiming a cell and filling it hides the values behind it.
// Until it continues, pop() returns false and the owner may sleep; that producer wakes the owner after its push
// (SleepGate).
//
// Algorithm: D. Vyukov's bounded queue with a sequence number per cell (1024cores.net, "Bounded MPMC queue"), for one
// consumer, so that pop() needs no compare-and-swap. A position is a lap, a multiple of the capacity, plus the index of
// its cell. The sequence of the cell at a position is that lap while free, lap + 1 while filled, and lap + capacity
// after the pop, which means "free" for the next lap. So a cell of zeros is free for the first one: the memory of a
// large queue is touched only as far as values come.
template <class T, class Atomics = StdAtomics>
class MpscQueue {
 public:
  // Holds at least `capacity` values, rounded up to a power of two of 2 or more. With one cell, "filled" and "free for
  // the next lap" would be the same number.
  explicit MpscQueue(std::size_t capacity)
      : mask_(std::bit_ceil(std::max<std::size_t>(capacity, 2)) - 1),
        cells_(Atomics::template zeroed<Cell>(mask_ + 1)) {}
  // No other thread may be pushing. Destroys the values that were not popped.
  ~MpscQueue() {
    while (Cell* cell = filled()) take(*cell);
  }
  MpscQueue(const MpscQueue&) = delete;
  MpscQueue& operator=(const MpscQueue&) = delete;

  // Any thread. False when full: `value` is unchanged, and the caller retries later (back-pressure). Callers that keep
  // at most capacity() values in the queue, pushing a value again only after the owner popped and returned it, never
  // see false.
  bool push(T&& value) {
    // Acquire here and release below, both on the tail: this producer sees every pop that earlier producers saw.
    // Otherwise each of them could be right that there is room while this one reads a cell's state from the lap before.
    std::size_t position = tail_.load(std::memory_order_acquire);
    Cell* cell;
    for (;;) {
      cell = &cells_[position & mask_];
      // Acquire: the owner destroyed the cell's last value before this thread constructs the next.
      const std::size_t sequence = cell->sequence.load(std::memory_order_acquire);
      const auto lead = static_cast<std::ptrdiff_t>(sequence - lap(position));
      if (lead < 0) return false;  // the cell still holds the value of the lap before
      if (lead > 0) {              // another producer claimed this position; reload the tail
        position = tail_.load(std::memory_order_acquire);
        continue;
      }
      if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_release, std::memory_order_acquire))
        break;
    }
    std::construct_at(cell->value(), std::move(value));
    cell->sequence.store(lap(position) + 1, std::memory_order_release);  // publishes the value to the owner
    return true;
  }

  // Owner thread. False when empty: `out` is unchanged.
  bool pop(T& out) {
    Cell* cell = filled();
    if (!cell) return false;
    out = std::move(*cell->value());
    take(*cell);
    return true;
  }

  // Owner thread. A value that another thread is still pushing may be missing, but never after that thread's wake-up.
  bool empty() const { return filled() == nullptr; }
  // Owner thread, or who is in its place. True: every push that this thread knows of, whole or only begun, was popped.
  // empty() says so too early: it also is while one producer has not filled its cell and others have filled those
  // behind it. Relaxed: a thread's own claims of the tail, and those that happen before, it cannot miss.
  bool none_claimed() const { return tail_.load(std::memory_order_relaxed) == head_; }

  std::size_t capacity() const { return mask_ + 1; }

 private:
  struct Cell {
    T* value() { return reinterpret_cast<T*>(storage); }

    typename Atomics::template Atomic<std::size_t> sequence;
    alignas(T) std::byte storage[sizeof(T)];
  };

  std::size_t lap(std::size_t position) const { return position & ~mask_; }

  // Acquire: the producer constructed the value before this thread reads it.
  Cell* filled() const {
    Cell& cell = cells_[head_ & mask_];
    return cell.sequence.load(std::memory_order_acquire) == lap(head_) + 1 ? &cell : nullptr;
  }
  void take(Cell& cell) {
    std::destroy_at(cell.value());
    cell.sequence.store(lap(head_) + capacity(),
                        std::memory_order_release);  // frees the cell for the producer of the next lap
    ++head_;
  }

  const std::size_t mask_;
  const typename Atomics::template Zeroed<Cell> cells_;
  alignas(kCacheLine) typename Atomics::template Atomic<std::size_t> tail_{0};  // producers
  alignas(kCacheLine) std::size_t head_ = 0;                                    // owner
};

}  // namespace fairway
