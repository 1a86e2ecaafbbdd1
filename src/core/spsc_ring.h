#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "core/atomics.h"

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

}  // namespace fairway
