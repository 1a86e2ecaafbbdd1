#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "core/atomics.h"

namespace fairway {

// A bounded queue from one producer thread to one consumer thread; wait-free on both sides. Never allocates after
// construction.
//
// Algorithm: Lamport's ring with free-running indices. Each side keeps a copy of the other's index and reads the shared
// one only when the copy says full or empty, so that in steady state the two cores exchange no index per value (J.
// Giacomoni et al., FastForward, PPoPP 2008; as "cached indices" in E. Rigtorp's SPSCQueue).
template <class T, class Atomics = StdAtomics>
class SpscRing {
 public:
  // Room for at least `capacity` values: rounded up to a power of two.
  explicit SpscRing(std::size_t capacity)
      : mask_(std::bit_ceil(std::max<std::size_t>(capacity, 1)) - 1), cells_(new Cell[mask_ + 1]) {}
  // Neither side may be at work; what was not popped is destroyed.
  ~SpscRing() {
    while (T* value = front()) take(value);
  }
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  // Producer. False when full: `value` is untouched.
  bool push(T&& value) { return emplace(std::move(value)); }
  bool push(const T& value) { return emplace(value); }

  // Consumer. The oldest value, null when there is none. It stays until pop().
  T* front() {
    if (head_copy_ == tail_seen_) {
      tail_seen_ = tail_.load(std::memory_order_acquire);  // the values up to there are constructed
      if (head_copy_ == tail_seen_) return nullptr;
    }
    return cells_[head_copy_ & mask_].value();
  }
  // Consumer. False: nothing is there, `out` is untouched.
  bool pop(T& out) {
    T* value = front();
    if (!value) return false;
    out = std::move(*value);
    take(value);
    return true;
  }
  // Consumer. Drops the oldest value, after front() gave one.
  bool pop() {
    T* value = front();
    if (value) take(value);
    return value != nullptr;
  }

  // Any thread: exact for a side that is not at work meanwhile, an estimate for others.
  std::size_t size() const {
    // First, and acquire: the tail is then at least as new as the one that this head was reached from.
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
      head_seen_ = head_.load(std::memory_order_acquire);  // the values before it are destroyed
      if (tail_copy_ - head_seen_ == capacity()) return false;
    }
    std::construct_at(cells_[tail_copy_ & mask_].value(), std::forward<Value>(value));
    tail_.store(++tail_copy_, std::memory_order_release);  // publishes the value
    return true;
  }
  void take(T* value) {
    std::destroy_at(value);
    head_.store(++head_copy_, std::memory_order_release);  // hands the empty cell back
  }

  const std::size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  // Producer's line: its index, its private copy of it, and what it last saw of the other side.
  alignas(kCacheLine) typename Atomics::template Atomic<std::size_t> tail_{0};
  std::size_t tail_copy_ = 0;
  std::size_t head_seen_ = 0;
  // Consumer's line.
  alignas(kCacheLine) typename Atomics::template Atomic<std::size_t> head_{0};
  std::size_t head_copy_ = 0;
  std::size_t tail_seen_ = 0;
};

}  // namespace fairway
