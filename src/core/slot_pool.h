#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/atomics.h"

namespace fairway {

// A fixed number of T, acquired by index, for the state of transfers in flight. Any thread acquires and releases,
// lock-free. Between the two, the slot belongs to the caller. It allocates only in its constructor. T is constructed
// once per slot and not reset between uses.
//
// Each slot has a generation, odd while acquired and even while free. So {index, generation} names one use of the slot
// (it repeats after 2^31 uses of one slot), and a stale handle is not mistaken for the slot's next user.
//
// Algorithm: Treiber's stack of free slots (IBM RJ 5118, 1986). Its head carries a tag that every change increments, so
// that a head that was popped and pushed back (ABA) does not compare equal. The tag has 32 bits: a thread is fooled
// only if it sleeps between reading and replacing the head for exactly a multiple of 2^32 changes.
template <class T, class Atomics = StdAtomics>
class SlotPool {
 public:
  // `kept` more slots, from index `capacity` on, are never acquired: they are reserved for the owner of the pool.
  explicit SlotPool(std::uint32_t capacity, std::uint32_t kept = 0)
      : capacity_(capacity), slots_(new Slot[capacity + kept]), head_(pack(0, 0)) {
    for (std::uint32_t i = 0; i < capacity; ++i)
      slots_[i].next.store(i + 1 < capacity ? i + 1 : kNone, std::memory_order_relaxed);
    if (capacity == 0) head_.store(pack(0, kNone), std::memory_order_relaxed);
  }
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // Any thread. Empty when no slot is free (back-pressure). The previous user's writes to the slot happen before.
  std::optional<std::uint32_t> acquire() {
    // Acquire: `next` below is at least as new as the head, and so is the slot's content once acquired. Every change of
    // the head is a read-modify-write, so each continues the release sequences of all releases before it.
    std::uint64_t head = head_.load(std::memory_order_acquire);
    std::uint32_t index;
    std::uint32_t next;
    do {
      index = static_cast<std::uint32_t>(head);
      if (index == kNone) return std::nullopt;
      next = slots_[index].next.load(
          std::memory_order_relaxed);  // stale if the slot was taken meanwhile; then the tag differs
      // On success this reads the very store that the acquire load above, or the failed exchange before, has read,
      // since no other store has its tag. Relaxed would suffice, but GCC 12 warns when the failure order is stronger.
    } while (!head_.compare_exchange_weak(head, pack(tag(head) + 1, next), std::memory_order_acquire,
                                          std::memory_order_acquire));
    advance_generation(slots_[index]);
    return index;
  }

  // Any thread, once per acquire(), after the caller's last access to the slot.
  void release(std::uint32_t index) {
    advance_generation(slots_[index]);
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      slots_[index].next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      // Release: this user's accesses to the slot, its generation and its `next` happen before the next user's.
    } while (!head_.compare_exchange_weak(head, pack(tag(head) + 1, index), std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  // Any thread: whether acquire() would find one. A hint, since others acquire too.
  bool any_free() const { return static_cast<std::uint32_t>(head_.load(std::memory_order_relaxed)) != kNone; }

  // Only for the slot's user, and for threads that it handed the slot to.
  T& operator[](std::uint32_t index) { return slots_[index].value; }
  const T& operator[](std::uint32_t index) const { return slots_[index].value; }

  // Any thread. At least as new as what the caller was handed with the index; publishes nothing. The caller's own
  // protocol must say whether the value can still change.
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

  // Only the slot's user writes it, so no read-modify-write is needed. Relaxed: it passes between users with the slot.
  static void advance_generation(Slot& slot) {
    slot.generation.store(slot.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  const std::uint32_t capacity_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(kCacheLine) typename Atomics::template Atomic<std::uint64_t> head_;
};

}  // namespace fairway
