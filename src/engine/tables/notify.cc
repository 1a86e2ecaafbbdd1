#include "engine/tables/notify.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

namespace fairway::engine {
namespace {

// Ranges that nobody named: counters and events of these ride in the immediate of their write (notifier.h).
constexpr std::uint32_t kFirst = 0x2000'0000, kEnd = 0x4000'0000;
// Of those above, communicators take what they need (collectives/counter_range.h), and read no space's counters.
constexpr std::uint32_t kCommunicatorsEnd = 0x8000'0000;
constexpr std::uint64_t kImmediates = std::uint64_t{1} << 32;
constexpr const char* kOwner = "a counter space of this engine";

std::string words(std::uint64_t first, std::uint64_t last) {
  return std::to_string(first) + " to " + std::to_string(last);
}

}  // namespace

CounterSpaces::CounterSpaces(std::uint32_t counters, std::uint32_t events)
    : counters_(counters),
      events_(events),
      spaces_(new Space[kMost]),
      counts_(StdAtomics::zeroed<std::atomic<std::uint64_t>>(counters)),
      next_first_(kFirst) {}

CounterSpaces::~CounterSpaces() = default;

// ---- making and releasing ----

Result<CounterSpace> CounterSpaces::make(std::uint32_t count, std::optional<std::uint32_t> given,
                                         const CounterTable& others) {
  if (count == 0) return Status(ErrorCode::invalid_argument, "a counter space has at least one immediate");
  if (given && *given + std::uint64_t{count} > kImmediates)
    return Status(ErrorCode::invalid_argument,
                  "immediates have 32 bits: " + words(*given, *given + std::uint64_t{count} - 1) + " are beyond them");
  const std::lock_guard lock(mutex_);
  if (given)
    if (Status refused = take_given(*given, count, others); !refused) return refused;
  Result<CounterSpace> made = make_taken(count, given, others);
  if (!made && given) ranges_->give_back(*given);
  return made;
}

Status CounterSpaces::take_given(std::uint32_t first, std::uint32_t count, const CounterTable& others) {
  const std::uint64_t last = first + std::uint64_t{count} - 1;
  const auto overlap = [&](const std::string& owner, std::uint64_t from, std::uint64_t to) {
    return Status(ErrorCode::already_exists, "immediates " + words(first, last) + " overlap " + owner + ", " +
                                                 words(from, to) + ": choose others, or let make_counters() choose");
  };
  if (first < kCommunicatorsEnd && last >= kEnd)
    return overlap("those of communicators", kEnd, kCommunicatorsEnd - std::uint64_t{1});
  if (const auto other = ranges_->take(first, last + 1, kOwner))
    return overlap(other->owner, other->first, other->end - 1);
  if (const auto counted = others.any_in(first, static_cast<std::uint32_t>(last))) {
    ranges_->give_back(first);
    return Status(ErrorCode::already_exists, "counter " + std::to_string(*counted) + " of the range " +
                                                 words(first, last) + " has counted for others before");
  }
  return {};
}

Result<CounterSpace> CounterSpaces::make_taken(std::uint32_t count, std::optional<std::uint32_t> given,
                                               const CounterTable& others) {
  const auto unused =
      std::find_if(&spaces_[0], &spaces_[kMost], [](const Space& s) { return s.stage_ == Space::Stage::free; });
  if (unused == &spaces_[kMost])
    return Status(ErrorCode::resource_exhausted,
                  "an engine has at most " + std::to_string(kMost) + " counter spaces: release one");
  const auto place = room_for(count);
  if (!place)
    return Status(ErrorCode::resource_exhausted, "there is no room for " + std::to_string(count) +
                                                     " more counters: raise EngineOptions::max_counters, which is " +
                                                     std::to_string(counters_));
  const std::optional<std::uint32_t> first = given ? given : take_free(count, others);
  if (!first) return Status(ErrorCode::resource_exhausted, "no range of so many immediates is free");
  if (notifications_ == nullptr) notifications_ = std::make_unique<SlotPool<Notification>>(events_);
  Space& space = *unused;
  if (space.events_ == nullptr) space.events_ = std::make_unique<PolledQueue<std::uint32_t>>(events_);
  for (std::uint32_t i = 0; i < count; ++i) counts_[*place + i].store(0, std::memory_order_relaxed);
  space.stage_ = Space::Stage::used;
  space.count_ = count;
  space.place_.store(*place, std::memory_order_relaxed);
  const std::uint32_t generation = space.generation_.load(std::memory_order_relaxed) + 1;
  space.generation_.store(generation, std::memory_order_release);
  space.range_.store(std::uint64_t{*first} << 32 | (*first + (count - 1)), std::memory_order_release);
  used_.fetch_add(1, std::memory_order_release);
  return CounterSpace{{static_cast<std::uint32_t>(unused - &spaces_[0]), generation}, *first, count};
}

Result<CounterSpaces::Space*> CounterSpaces::retire(CounterSpaceId id) {
  const std::lock_guard lock(mutex_);
  Space* const space = find(id);
  if (space == nullptr)
    return Status(ErrorCode::not_found,
                  "no such counter space, or it was released: name one that make_counters() gave");
  space->events_->while_nobody_pops([&] { space->generation_.store(id.generation + 1, std::memory_order_release); });
  const std::uint32_t first = space->first();
  space->range_.store(Space::kNothing, std::memory_order_release);
  ranges_->give_back(first);
  space->stage_ = Space::Stage::retired;
  return space;
}

void CounterSpaces::free(Space& space) {
  const std::lock_guard lock(mutex_);
  space.stage_ = Space::Stage::free;
  space.count_ = 0;
  used_.fetch_sub(1, std::memory_order_release);
}

std::optional<std::uint32_t> CounterSpaces::room_for(std::uint32_t count) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // from, to
  for (std::uint32_t i = 0; i < kMost; ++i)
    if (const Space& s = spaces_[i]; s.stage_ != Space::Stage::free)
      taken.emplace_back(s.place_, s.place_ + std::uint64_t{s.count_});
  std::sort(taken.begin(), taken.end());
  std::uint64_t at = 0;
  for (const auto& [from, to] : taken) {
    if (from - at >= count) break;
    at = to;
  }
  return at + count <= counters_ ? std::optional(static_cast<std::uint32_t>(at)) : std::nullopt;
}

// Those that were given last come again last: what is still on its way to a space that was released reaches no other.
std::optional<std::uint32_t> CounterSpaces::take_free(std::uint32_t count, const CounterTable& others) {
  std::uint64_t at = next_first_;
  for (bool again = false;;) {
    const std::uint64_t last = at + count - 1;
    if (last >= kEnd) {
      if (again || count > kEnd - kFirst) return std::nullopt;
      again = true;
      at = kFirst;
      continue;
    }
    if (const auto counted = others.any_in(static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(last))) {
      at = std::uint64_t{*counted} + 1;
      continue;
    }
    if (const auto other = ranges_->take(at, last + 1, kOwner)) {
      at = other->end;
      continue;
    }
    next_first_ = static_cast<std::uint32_t>(last + 1);
    return static_cast<std::uint32_t>(at);
  }
}

// ---- what arrives ----

CounterSpaces::Space* CounterSpaces::search(std::uint32_t immediate) const {
  for (std::uint32_t i = 0; i < kMost; ++i)
    if (spaces_[i].has(immediate)) return &spaces_[i];
  return nullptr;
}

CounterSpaces::Space* CounterSpaces::find(CounterSpaceId id) const {
  // An even generation is of none.
  if (id.slot >= kMost || id.generation % 2 == 0) return nullptr;
  Space& space = spaces_[id.slot];
  return space.generation_.load(std::memory_order_acquire) == id.generation ? &space : nullptr;
}

void CounterSpaces::add(Space& space, std::uint32_t immediate, std::uint64_t count) {
  const std::uint64_t at = space.place_.load(std::memory_order_relaxed) + std::uint64_t{immediate - space.first()};
  if (at < counters_) counts_[at].fetch_add(count, std::memory_order_release);  // who reads it sees the bytes before it
}

// One that is just released, or made anew, says what it likes, of memory that is there.
std::uint64_t CounterSpaces::read(const Space& space, std::uint32_t immediate) const {
  const std::uint64_t at = space.place_.load(std::memory_order_relaxed) + std::uint64_t{immediate - space.first()};
  return at < counters_ ? counts_[at].load(std::memory_order_acquire) : 0;
}

void CounterSpaces::push(Space& space, Notification&& notification) {
  const auto slot = notifications_->acquire();
  if (!slot) return;
  (*notifications_)[*slot] = std::move(notification);
  (void)space.events_->push(std::uint32_t{*slot});
}

void CounterSpaces::take(std::uint32_t slot, Notification& out) {
  out = (*notifications_)[slot];
  notifications_->release(slot);
}

bool CounterSpaces::pop(Space& space, CounterSpaceId id, Notification& out) {
  std::uint32_t slot = 0;
  if (!space.events_->pop_if(slot, [&] { return space.generation_.load(std::memory_order_relaxed) == id.generation; }))
    return false;
  take(slot, out);
  return true;
}

bool CounterSpaces::pop_left(Space& space, Notification& out) {
  std::uint32_t slot = 0;
  if (!space.events_->pop(slot)) return false;
  take(slot, out);
  return true;
}

bool CounterSpaces::has_events(const Space& space) {
  return !space.events_->empty();
}

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
