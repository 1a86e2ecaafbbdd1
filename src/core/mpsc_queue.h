#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/atomics.h"

namespace fairway {

// A bounded queue from any thread to one owner: how everybody else talks to an owner thread. Never allocates after
// construction. Values of one producer come out in the order it pushed them.
//
// push() is lock-free. A producer stopped between claiming a cell and filling it hides what was pushed behind it until
// it goes on: pop() then says "nothing" and the owner may sleep, since that producer wakes it after its push
// (SleepGate).
//
// Algorithm: D. Vyukov's bounded queue with a sequence number per cell (1024cores.net, "Bounded MPMC queue"), with one
// consumer, so that taking needs no compare-and-swap. For the cell of position p its number is p when free, p + 1 when
// filled, and p + capacity once taken, which is "free" for the next lap.
template <class T, class Atomics = StdAtomics>
class MpscQueue {
 public:
  // Room for at least `capacity` values: rounded up to a power of two, 2 or more (with one cell "filled" and "free for
  // the next lap" would be the same number).
  explicit MpscQueue(std::size_t capacity)
      : mask_(std::bit_ceil(std::max<std::size_t>(capacity, 2)) - 1), cells_(new Cell[mask_ + 1]) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }
  // No other thread may be pushing; what was not popped is destroyed.
  ~MpscQueue() {
    while (Cell* cell = filled()) take(*cell);
  }
  MpscQueue(const MpscQueue&) = delete;
  MpscQueue& operator=(const MpscQueue&) = delete;

  // Any thread. False when full: `value` is untouched, the caller keeps it and tries later (back-pressure). Never false
  // when every order of what happened before leaves room: who has at most capacity() things in the queue, because it
  // pushes a thing again only after the owner popped it and gave it back, may rely on room.
  bool push(T&& value) {
    // Acquire here and release below, on the tail: we know of the pops that the producers before us knew of. Without,
    // each of them can be right that there is room and we see a cell as it was a lap ago.
    std::size_t position = tail_.load(std::memory_order_acquire);
    Cell* cell;
    for (;;) {
      cell = &cells_[position & mask_];
      // Acquire: the owner's destruction of the cell's last value comes before our construction of the next.
      const std::size_t sequence = cell->sequence.load(std::memory_order_acquire);
      const auto lead = static_cast<std::ptrdiff_t>(sequence - position);
      if (lead < 0) return false;  // still holds the value of the lap before
      if (lead > 0) {              // another producer was faster: catch up
        position = tail_.load(std::memory_order_acquire);
        continue;
      }
      if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_release, std::memory_order_acquire))
        break;
    }
    std::construct_at(cell->value(), std::move(value));
    cell->sequence.store(position + 1, std::memory_order_release);  // publishes the value to the owner
    return true;
  }

  // Owner thread. False: nothing is there, `out` is untouched.
  bool pop(T& out) {
    Cell* cell = filled();
    if (!cell) return false;
    out = std::move(*cell->value());
    take(*cell);
    return true;
  }

  // Owner thread. What was pushed before by another thread may show later, but never after that thread's wake-up.
  bool empty() const { return filled() == nullptr; }

  std::size_t capacity() const { return mask_ + 1; }

 private:
  struct Cell {
    T* value() { return reinterpret_cast<T*>(storage); }

    typename Atomics::template Atomic<std::size_t> sequence;
    alignas(T) std::byte storage[sizeof(T)];
  };

  // Acquire: the value was constructed before we look at it.
  Cell* filled() const {
    Cell& cell = cells_[head_ & mask_];
    return cell.sequence.load(std::memory_order_acquire) == head_ + 1 ? &cell : nullptr;
  }
  void take(Cell& cell) {
    std::destroy_at(cell.value());
    cell.sequence.store(head_ + mask_ + 1,
                        std::memory_order_release);  // hands the empty cell to the next lap's producer
    ++head_;
  }

  const std::size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(kCacheLine) typename Atomics::template Atomic<std::size_t> tail_{0};  // producers
  alignas(kCacheLine) std::size_t head_ = 0;                                    // owner
};

}  // namespace fairway
