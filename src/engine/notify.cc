#include "engine/notify.h"

#include <algorithm>
#include <bit>

namespace fairway::engine {

std::uint32_t NotificationQueue::grant(std::uint32_t wanted) {
  std::uint32_t left = left_.load(std::memory_order_relaxed);
  std::uint32_t share = 0;
  do {
    const std::uint32_t shared = left > reserve_ ? (left - reserve_) / 4 : 0;
    share = std::min({wanted, std::max(shared, kLeast), left});
  } while (!left_.compare_exchange_weak(left, left - share, std::memory_order_relaxed));
  return share;
}

void NotificationQueue::give_back(std::uint32_t granted) {
  left_.fetch_add(granted, std::memory_order_relaxed);
}

CounterTable::CounterTable(std::uint32_t capacity)
    : capacity_(capacity),
      mask_(std::bit_ceil(std::max<std::size_t>(capacity, 1) * 2) - 1),
      slots_(new Slot[mask_ + 1]) {}

std::size_t CounterTable::first_slot(std::uint32_t immediate) const {
  return (immediate * 0x9E3779B97F4A7C15ull >> 32) & mask_;  // Fibonacci hashing (Knuth 6.4)
}

bool CounterTable::add(std::uint32_t immediate, std::uint64_t count) {
  const std::uint64_t key = std::uint64_t{immediate} + 1;
  for (std::size_t i = first_slot(immediate);; i = (i + 1) & mask_) {
    std::uint64_t found = slots_[i].key.load(std::memory_order_relaxed);
    if (found == 0) {
      if (used_.fetch_add(1, std::memory_order_relaxed) >= capacity_) {
        used_.fetch_sub(1, std::memory_order_relaxed);
        return false;
      }
      if (slots_[i].key.compare_exchange_strong(found, key, std::memory_order_relaxed))
        found = key;
      else
        used_.fetch_sub(1, std::memory_order_relaxed);
    }
    if (found != key) continue;
    slots_[i].count.fetch_add(count, std::memory_order_release);  // who reads the count sees the bytes before it
    return true;
  }
}

std::uint64_t CounterTable::read(std::uint32_t immediate) const {
  const std::uint64_t key = std::uint64_t{immediate} + 1;
  for (std::size_t i = first_slot(immediate);; i = (i + 1) & mask_) {
    const std::uint64_t found = slots_[i].key.load(std::memory_order_relaxed);
    if (found == key) return slots_[i].count.load(std::memory_order_acquire);
    if (found == 0) return 0;
  }
}

}  // namespace fairway::engine
