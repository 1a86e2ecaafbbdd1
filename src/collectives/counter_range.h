#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "fairway/engine.h"

#include "core/counter_ranges.h"

namespace fairway::collectives {

// Counters of an engine that one communicator of this process uses, and no other that lives, nor a counter space of the
// user's. A resource; any thread.
class CounterRange {
 public:
  // So many from `first` on. Where somebody else has some of these: those behind; `exactly`: already_exists, which
  // says who.
  static Result<CounterRange> take(const Engine& engine, const std::string& name, std::uint64_t first,
                                   std::uint32_t count, bool exactly);
  CounterRange(CounterRange&&) noexcept = default;
  CounterRange& operator=(CounterRange&&) = delete;
  ~CounterRange();

  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint64_t end() const { return std::uint64_t{first_} + count_; }

  // Where counters lie that nobody chose. Below 0x80000000: a counter with that bit set has a record of its own behind
  // each write (engine/messages/notifier.h).
  static constexpr std::uint32_t kBegin = 0x40000000, kEnd = 0x80000000;

 private:
  CounterRange(std::shared_ptr<CounterRanges> ranges, std::uint32_t first, std::uint32_t count)
      : ranges_(std::move(ranges)), first_(first), count_(count) {}

  std::shared_ptr<CounterRanges> ranges_;  // null: it was moved from
  std::uint32_t first_, count_;
};

}  // namespace fairway::collectives
