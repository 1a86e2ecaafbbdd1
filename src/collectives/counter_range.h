#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "fairway/engine.h"

namespace fairway::collectives {

// Counters of an engine that one communicator of this process uses, and no other that lives. A resource; any thread.
class CounterRange {
 public:
  // So many from `first` on. Where another communicator has some of these: those behind it; `exactly`: already_exists,
  // which names it.
  static Result<CounterRange> take(const Engine& engine, const std::string& name, std::uint64_t first,
                                   std::uint32_t count, bool exactly);
  CounterRange(CounterRange&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), first_(other.first_), count_(other.count_) {}
  CounterRange& operator=(CounterRange&&) = delete;
  ~CounterRange();

  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint64_t end() const { return std::uint64_t{first_} + count_; }

  // Where counters lie that nobody chose. Below 0x80000000: a counter with that bit set has a record of its own behind
  // each write (engine/messages/notifier.h).
  static constexpr std::uint32_t kBegin = 0x40000000, kEnd = 0x80000000;

 private:
  CounterRange(const Engine& engine, std::uint32_t first, std::uint32_t count)
      : engine_(&engine), first_(first), count_(count) {}

  const Engine* engine_;
  std::uint32_t first_, count_;
};

}  // namespace fairway::collectives
