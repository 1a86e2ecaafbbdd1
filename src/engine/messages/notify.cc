#include "engine/messages/notify.h"

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

CounterTable::CounterTable(std::uint32_t capacity, CounterSpaces* spaces)
    : capacity_(capacity),
      mask_(std::bit_ceil(std::max<std::size_t>(capacity, 1) * 2) - 1),
      slots_(new Slot[mask_ + 1]),
      spaces_(spaces) {}

std::size_t CounterTable::first_slot(std::uint32_t immediate) const {
  return (immediate * 0x9E3779B97F4A7C15ull >> 32) & mask_;  // Fibonacci hashing (Knuth 6.4)
}

CounterTable::Slot* CounterTable::find(std::uint32_t immediate) const {
  const std::uint64_t key = std::uint64_t{immediate} + 1;
  for (std::size_t i = first_slot(immediate);; i = (i + 1) & mask_) {
    const std::uint64_t found = slots_[i].key.load(std::memory_order_relaxed);
    if (found == key || found == 0) return &slots_[i];
  }
}

// One thread at a time: several would mistake each other's reservations for a full table.
CounterTable::Slot* CounterTable::take(std::uint32_t immediate) {
  const std::lock_guard lock(taking_);
  Slot* const slot = find(immediate);
  if (slot->key.load(std::memory_order_relaxed) != 0) return slot;  // another thread has added it meanwhile
  if (used_ == capacity_) return nullptr;
  ++used_;
  slot->key.store(std::uint64_t{immediate} + 1, std::memory_order_relaxed);
  return slot;
}

bool CounterTable::add(std::uint32_t immediate, std::uint64_t count) {
  if (spaces_ != nullptr)
    if (CounterSpaces::Space* const space = spaces_->of(immediate)) {
      spaces_->add(*space, immediate, count);
      return true;
    }
  Slot* slot = find(immediate);
  if (slot->key.load(std::memory_order_relaxed) != std::uint64_t{immediate} + 1) slot = take(immediate);
  if (slot == nullptr) return false;
  slot->count.fetch_add(count, std::memory_order_release);  // a reader of the count sees the bytes before it
  return true;
}

// A slot that was just reused for another value does not count for this one.
std::uint64_t CounterTable::read(std::uint32_t immediate) const {
  if (spaces_ != nullptr)
    if (const CounterSpaces::Space* const space = spaces_->of(immediate)) return spaces_->read(*space, immediate);
  const Slot* const slot = find(immediate);
  return slot->key.load(std::memory_order_relaxed) == std::uint64_t{immediate} + 1
             ? slot->count.load(std::memory_order_acquire)
             : 0;
}

std::optional<std::uint32_t> CounterTable::any_in(std::uint32_t first, std::uint32_t last) const {
  for (std::size_t i = 0; i <= mask_; ++i) {
    const std::uint64_t key = slots_[i].key.load(std::memory_order_relaxed);
    if (key > first && key <= std::uint64_t{last} + 1) return static_cast<std::uint32_t>(key - 1);
  }
  return std::nullopt;
}

}  // namespace fairway::engine
