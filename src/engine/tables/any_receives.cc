#include "engine/tables/any_receives.h"

#include <algorithm>

namespace fairway::engine {

std::uint32_t AnyReceives::add(const One& one) {
  std::lock_guard lock(mutex_);
  auto index = static_cast<std::uint32_t>(entries_.size());
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (index == kMost) {
    return kNoSlot;
  } else {
    entries_.emplace_back();
  }
  entries_[index] = {one, workers_};
  return index;
}

bool AnyReceives::take(std::uint32_t index, std::uint32_t worker) {
  std::lock_guard lock(mutex_);
  if (entries_[index].one.taker != kNobody) return false;
  entries_[index].one.taker = worker;
  return true;
}

AnyReceives::One AnyReceives::find(std::uint32_t index) const {
  std::lock_guard lock(mutex_);
  return entries_[index].one;
}

void AnyReceives::drop(std::uint32_t index) {
  std::lock_guard lock(mutex_);
  if (--entries_[index].users == 0) free_.push_back(index);
}

std::uint32_t AnyWaiting::take(std::uint64_t tag, std::uint64_t before) {
  for (std::size_t i = 0; i < waiting_.size() && waiting_[i].place <= before;) {
    if (waiting_[i].tag != tag) {
      ++i;
      continue;
    }
    const Waiting one = waiting_[i];
    const bool mine = all_.take(one.index, worker_);
    erase(i);
    if (mine) return one.id.slot;
  }
  return kNoSlot;
}

bool AnyWaiting::precedes(std::uint64_t tag, std::uint64_t before) const {
  return std::ranges::any_of(waiting_, [&](const Waiting& one) { return one.tag == tag && one.place <= before; });
}

const AnyWaiting::Waiting* AnyWaiting::find(TransferId id) const {
  const auto found = std::ranges::find(waiting_, id, &Waiting::id);
  return found == waiting_.end() ? nullptr : &*found;
}

void AnyWaiting::erase(std::size_t at) {
  all_.drop(waiting_[at].index);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace fairway::engine
