#include "engine/tables/completions.h"

#include <algorithm>
#include <bit>
#include <string>

namespace fairway::engine {
namespace {

constexpr std::uint32_t kMostPlaces = 1u << 24;  // as of EngineOptions::max_transfers

Status none(QueueId id) {
  return {ErrorCode::not_found, id ? "no such completion queue, or it has ended: name one that make_queue() gave"
                                   : "an empty QueueId names no queue: poll() without one is for those"};
}

}  // namespace

NamedQueue::Taken NamedQueue::take_place(std::uint32_t generation) {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  do {
    if (static_cast<std::uint32_t>(state >> 32) != generation) return Taken::ended;
    if (static_cast<std::uint32_t>(state) >= limit_.load(std::memory_order_relaxed)) return Taken::full;
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire));
  return Taken::yes;
}

Result<QueueId> CompletionQueues::make(std::uint32_t capacity) {
  if (capacity == 0 || capacity > kMostPlaces)
    return Status(ErrorCode::invalid_argument,
                  "a completion queue's capacity is 1 to 2^24 transfers, not " + std::to_string(capacity));
  const std::lock_guard lock(mutex_);
  const std::uint32_t rounded = std::bit_ceil(capacity);
  std::uint32_t place = kMost;
  for (std::uint32_t i = 0; i < kMost; ++i) {
    const NamedQueue* const queue = places_[i].load(std::memory_order_relaxed);
    const bool is_free = queue == nullptr || (queue->state_.load(std::memory_order_relaxed) & NamedQueue::kOne) == 0;
    if (!is_free) continue;
    if (place == kMost) place = i;
    if (queue == nullptr || queue->capacity_ < rounded) continue;
    place = i;  // one that need not be allocated
    break;
  }
  if (place == kMost)
    return Status(ErrorCode::resource_exhausted,
                  "an engine has at most " + std::to_string(kMost) + " completion queues: end one");
  NamedQueue* queue = places_[place].load(std::memory_order_relaxed);
  std::uint64_t generation = queue == nullptr ? 0 : queue->state_.load(std::memory_order_relaxed) >> 32;
  if (queue == nullptr || queue->capacity_ < rounded) {
    all_.push_back(std::make_unique<NamedQueue>(rounded));
    queue = all_.back().get();
  }
  queue->limit_.store(capacity, std::memory_order_relaxed);
  ++generation;
  queue->state_.store(generation << 32, std::memory_order_release);
  places_[place].store(queue, std::memory_order_release);
  return QueueId{place, static_cast<std::uint32_t>(generation)};
}

Status CompletionQueues::end(QueueId id) {
  const std::lock_guard lock(mutex_);
  NamedQueue* const queue = find(id);
  if (queue == nullptr) return none(id);
  std::uint64_t unused = std::uint64_t{id.generation} << 32;
  bool ended = false;
  queue->slots_.while_nobody_pops([&] {
    ended = queue->state_.compare_exchange_strong(unused, unused + NamedQueue::kOne, std::memory_order_acq_rel);
  });
  if (ended) {
    queue->told_.fetch_add(1, std::memory_order_release);
    return {};
  }
  return {ErrorCode::invalid_argument, std::to_string(static_cast<std::uint32_t>(unused)) +
                                           " transfers that name the queue are in flight or not collected: cancel "
                                           "them, and poll it until they are"};
}

Status CompletionQueues::take_place(QueueId id, NamedQueue*& out) const {
  out = find(id);
  const NamedQueue::Taken taken = out == nullptr ? NamedQueue::Taken::ended : out->take_place(id.generation);
  if (taken == NamedQueue::Taken::yes) return {};
  if (taken == NamedQueue::Taken::ended) return none(id);
  return {ErrorCode::queue_full,
          "as many transfers as its completion queue has places name it: poll that queue, then "
          "try again"};
}

}  // namespace fairway::engine
