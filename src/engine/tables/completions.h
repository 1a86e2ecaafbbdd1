#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fairway/engine.h"
#include "fairway/request.h"

#include "core/atomics.h"
#include "core/time.h"
#include "engine/expectation.h"
#include "engine/waiting.h"

namespace fairway::engine {

// One that make_queue() gave: completions for whoever polls it, by slot of the transfer. Every transfer that names it
// has a place in it from its submission until it is collected, so it is never full.
class NamedQueue {
 public:
  explicit NamedQueue(std::uint32_t capacity) : capacity_(capacity), slots_(capacity) {}

  // ---- who submits ----
  enum class Taken : std::uint8_t { yes, full, ended };
  Taken take_place(std::uint32_t generation);
  void give_back() { state_.fetch_sub(1, std::memory_order_relaxed); }  // it was not submitted, or was collected
  // ---- who ends a transfer; the caller then wakes told() ----
  void push(std::uint32_t slot) {
    (void)slots_.push(std::move(slot));
    told_.fetch_add(1, std::memory_order_release);
  }
  // ---- who polls: any thread ----
  bool pop(std::uint32_t generation, std::uint32_t& slot) {
    return slots_.pop_if(slot, [&] { return is(generation); });
  }
  [[nodiscard]] bool empty() const { return slots_.empty(); }
  [[nodiscard]] bool is(std::uint32_t generation) const {
    return static_cast<std::uint32_t>(state_.load(std::memory_order_acquire) >> 32) == generation;
  }
  std::atomic<std::uint32_t>& told() { return told_; }  // grows when there is a reason to look

 private:
  friend class CompletionQueues;
  static constexpr std::uint64_t kOne = std::uint64_t{1} << 32;  // of a generation

  const std::uint32_t capacity_;         // of slots_
  std::atomic<std::uint32_t> limit_{0};  // what its maker asked for
  std::atomic<std::uint64_t> state_{0};  // generation << 32 | places that are taken; an even generation: free
  std::atomic<std::uint32_t> told_{0};
  PolledQueue<std::uint32_t> slots_;
};

// The named queues of an engine. Making and ending them takes a lock, all else none. One that has ended is kept and
// made again, so that a poller of the past reads no freed memory.
class CompletionQueues {
 public:
  static constexpr std::uint32_t kMost = 64;

  Result<QueueId> make(std::uint32_t capacity);
  // Refused while transfers name it. The caller then wakes its told().
  Status end(QueueId id);
  // Any thread. Null: there is none of that id. It stays readable for as long as the engine, whatever it is by then.
  [[nodiscard]] NamedQueue* find(QueueId id) const {
    if (id.slot >= kMost || !id) return nullptr;
    NamedQueue* const queue = places_[id.slot].load(std::memory_order_acquire);
    return queue != nullptr && queue->is(id.generation) ? queue : nullptr;
  }
  // A place for a transfer that names it. Errors: not_found, queue_full.
  Status take_place(QueueId id, NamedQueue*& out) const;
  // Calls visit(queue) for each that is, or was.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& place : places_)
      if (NamedQueue* const queue = place.load(std::memory_order_acquire)) visit(*queue);
  }

 private:
  std::array<std::atomic<NamedQueue*>, kMost> places_{};
  std::mutex mutex_;  // guards all_, and who makes or ends one
  // Also those that a longer one has replaced: of one place at most one of each power of two.
  std::vector<std::unique_ptr<NamedQueue>> all_;
};

// By which callers that wait for several transfers sleep on one word. Who ends a transfer stores that first,
// sequentially consistent, then calls noted(): while nobody watches, that is one load. A watcher begins, reads `ends`,
// looks at its transfers, sequentially consistent, and sleeps while `ends` holds what it read. Either it sees that the
// transfer has ended, or the one that ends it sees the watcher. Any thread. tests/model explores it.
template <class Atomics = StdAtomics>
class EndsCount {
 public:
  void begin() { watchers_.fetch_add(1, std::memory_order_seq_cst); }
  void end() { watchers_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t seen() const { return ends_.load(std::memory_order_acquire); }
  // True: somebody may sleep on the word, so wake it.
  [[nodiscard]] bool noted() {
    if (watchers_.load(std::memory_order_seq_cst) == 0) return false;
    // Who reads this sees what ended before: a processor may count before it has stored, unless told otherwise.
    ends_.fetch_add(1, std::memory_order_release);
    return true;
  }
  typename Atomics::template Atomic<std::uint32_t>& word() { return ends_; }

 private:
  typename Atomics::template Atomic<std::uint32_t> watchers_{0};
  typename Atomics::template Atomic<std::uint32_t> ends_{0};
};

// The completions of a worker's transfers that were over when they were accepted (short_path.h): an id each, until it
// is collected, and what explain() says of the last kSize of them. They are all ok, and have no place in the
// TransferTable. One thread at a time adds, by the right to step the worker; any thread collects. tests/model explores
// it.
//
// A place belongs to who adds while its word says `free`, and to who collects while it says otherwise: collecting reads
// the place, then takes the word by one compare-and-swap, so that of several only one gets it, and what it read was of
// that id.
template <class Atomics = StdAtomics, std::uint32_t Places = 1024>
class AtOnceTable {
 public:
  static constexpr std::uint32_t kSize = Places;  // taken in turn

  struct Past {  // for explain(); who adds alone reads it
    Operation operation = Operation::write;
    std::uint8_t link = 0;  // of the peer
    Place place = kNoPlace, far_place = kNoPlace;
    PeerId peer;
    std::uint64_t bytes = 0;
    Time at = 0, took = 0;
  };

  AtOnceTable() = default;
  // As if each place had had so many, so that a test need not go through them.
  explicit AtOnceTable(std::uint32_t used) {
    for (At& at : places_) at.word.store(used << 2 | kFree, std::memory_order_relaxed);
  }

  // Who adds: the next place, or one of a few after it, if it is free; else null. To be asked before the bytes are
  // moved. What it holds is of an earlier id, until it is written.
  Past* space() {
    for (std::uint32_t tries = 0; tries < kTries; ++tries, next_ = (next_ + 1) % kSize)
      // Acquire: what the last collector read there was read before it is overwritten.
      if ((places_[next_].word.load(std::memory_order_acquire) & kStages) == kFree) return &places_[next_].past;
    return nullptr;
  }
  // Who adds, once what space() gave is written: index and generation of the id.
  std::pair<std::uint32_t, std::uint32_t> add(void* user_data, bool to_poll) {
    At& at = places_[next_];
    std::uint32_t generation = (at.word.load(std::memory_order_relaxed) >> 2) + 1;
    if (generation > kGenerations) generation = 1;
    at.bytes.store(at.past.bytes, std::memory_order_relaxed);
    at.user_data.store(user_data, std::memory_order_relaxed);
    at.word.store(generation << 2 | (to_poll ? kToPoll : kToWait), std::memory_order_release);
    const std::uint32_t index = next_;
    next_ = (next_ + 1) % kSize;
    return {index, generation};
  }
  // Any thread. False: it was collected, never was, or is collected the other way.
  bool collect(std::uint32_t index, std::uint32_t generation, bool to_poll, std::uint64_t& bytes, void*& user_data) {
    if (index >= kSize) return false;
    At& at = places_[index];
    std::uint32_t seen = at.word.load(std::memory_order_acquire);
    if (seen != (generation << 2 | (to_poll ? kToPoll : kToWait))) return false;
    bytes = at.bytes.load(std::memory_order_relaxed);
    user_data = at.user_data.load(std::memory_order_relaxed);
    return at.word.compare_exchange_strong(seen, generation << 2 | kFree, std::memory_order_acq_rel,
                                           std::memory_order_relaxed);
  }
  // Any thread: whether it was given and is not collected yet, and whether it was given at all (of generations that
  // came round again: in the latest round).
  [[nodiscard]] bool waits(std::uint32_t index, std::uint32_t generation) const {
    if (index >= kSize) return false;
    const std::uint32_t word = places_[index].word.load(std::memory_order_acquire);
    return word >> 2 == generation && (word & kStages) != kFree;
  }
  [[nodiscard]] bool was_given(std::uint32_t index, std::uint32_t generation) const {
    return index < kSize && generation != 0 && generation <= generation_of(index);
  }
  [[nodiscard]] std::uint32_t generation_of(std::uint32_t index) const {
    return places_[index].word.load(std::memory_order_relaxed) >> 2;
  }
  [[nodiscard]] std::uint32_t used() const {  // any thread; reads every place
    std::uint32_t count = 0;
    for (const At& at : places_) count += (at.word.load(std::memory_order_relaxed) & kStages) != kFree ? 1u : 0u;
    return count;
  }
  // Who adds. Null: never given, or longer ago than kSize.
  [[nodiscard]] const Past* past(std::uint32_t index, std::uint32_t generation) const {
    return index < kSize && generation != 0 && generation_of(index) == generation ? &places_[index].past : nullptr;
  }

 private:
  static constexpr std::uint32_t kTries = Places < 8 ? Places : 8;
  static constexpr std::uint32_t kGenerations = (1u << 30) - 1;
  static constexpr std::uint32_t kStages = 3, kFree = 0, kToWait = 1, kToPoll = 2;
  struct At {
    typename Atomics::template Atomic<std::uint32_t> word{0};  // generation << 2 | stage
    typename Atomics::template Atomic<std::uint64_t> bytes{0};
    typename Atomics::template Atomic<void*> user_data{nullptr};
    Past past;
  };

  std::array<At, kSize> places_;
  std::uint32_t next_ = 0;
};

}  // namespace fairway::engine
