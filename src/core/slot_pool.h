#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/atomics.h"

namespace fairway {

// A fixed number of T, lent out by index: what a transfer in flight keeps. Any thread acquires and releases, lock-free;
// between the two the slot is the caller's alone. Never allocates after construction. T is constructed once per slot
// and not reset between loans.
//
// Each slot has a generation, odd while it is lent and even while it is free, so that {index, generation} names one
// loan (it repeats after 2^31 loans of one slot) and a late handle can be told from the slot's next tenant.
//
// Algorithm: Treiber's stack (IBM RJ 5118, 1986) of free slots. Its head carries a tag that every change increments, so
// that a head popped and pushed back meanwhile (ABA) does not look unchanged. The tag has 32 bits: a thread would have
// to sleep between reading the head and replacing it for exactly a multiple of 2^32 changes to be fooled.
template <class T, class Atomics = StdAtomics>
class SlotPool {
 public:
  // `kept` slots more, from `capacity` on, are lent to nobody: they are the owner's.
  explicit SlotPool(std::uint32_t capacity, std::uint32_t kept = 0)
      : capacity_(capacity), slots_(new Slot[capacity + kept]), head_(pack(0, 0)) {
    for (std::uint32_t i = 0; i < capacity; ++i)
      slots_[i].next.store(i + 1 < capacity ? i + 1 : kNone, std::memory_order_relaxed);
    if (capacity == 0) head_.store(pack(0, kNone), std::memory_order_relaxed);
  }
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // Any thread. Nothing when all slots are lent (back-pressure). The last tenant's writes to the slot come before.
  std::optional<std::uint32_t> acquire() {
    // Acquire: `next` below is at least as new as the head, and so is the slot's content once we own it. Every change
    // of the head is a read-modify-write, so each one carries on the release sequences of all releases before it.
    std::uint64_t head = head_.load(std::memory_order_acquire);
    std::uint32_t index;
    std::uint32_t next;
    do {
      index = static_cast<std::uint32_t>(head);
      if (index == kNone) return std::nullopt;
      next =
          slots_[index].next.load(std::memory_order_relaxed);  // wrong if the slot went meanwhile: then the tag differs
      // On success it reads the very store that was acquired above or by the failure before, for no other has its tag:
      // relaxed would do, but GCC 12 warns of a failure order that is stronger.
    } while (!head_.compare_exchange_weak(head, pack(tag(head) + 1, next), std::memory_order_acquire,
                                          std::memory_order_acquire));
    advance_generation(slots_[index]);
    return index;
  }

  // Any thread, once per acquire(), after the caller's last use of the slot.
  void release(std::uint32_t index) {
    advance_generation(slots_[index]);
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      slots_[index].next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      // Release: our use of the slot, its generation and its `next` come before the next tenant's.
    } while (!head_.compare_exchange_weak(head, pack(tag(head) + 1, index), std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  // The tenant's; others only through what the tenant handed them.
  T& operator[](std::uint32_t index) { return slots_[index].value; }
  const T& operator[](std::uint32_t index) const { return slots_[index].value; }

  // Any thread. At least as new as what the caller was handed with the index; publishes nothing. Whether it may still
  // change under the caller is the caller's protocol to know.
  std::uint32_t generation(std::uint32_t index) const {
    return slots_[index].generation.load(std::memory_order_relaxed);
  }
  std::uint32_t capacity() const { return capacity_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Slot {
    T value{};
    typename Atomics::template Atomic<std::uint32_t> next{kNone};
    typename Atomics::template Atomic<std::uint32_t> generation{0};
  };

  static constexpr std::uint64_t pack(std::uint32_t tag, std::uint32_t index) {
    return static_cast<std::uint64_t>(tag) << 32 | index;
  }
  static constexpr std::uint32_t tag(std::uint64_t head) { return static_cast<std::uint32_t>(head >> 32); }

  // Only the tenant writes it, so no read-modify-write. Relaxed: from tenant to tenant it goes with the slot.
  static void advance_generation(Slot& slot) {
    slot.generation.store(slot.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  const std::uint32_t capacity_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(kCacheLine) typename Atomics::template Atomic<std::uint64_t> head_;
};

}  // namespace fairway
