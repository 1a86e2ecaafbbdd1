#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "fairway/request.h"

#include "core/atomics.h"
#include "core/time.h"
#include "engine/expectation.h"

namespace fairway::engine {

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
