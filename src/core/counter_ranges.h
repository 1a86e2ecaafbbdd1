#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace fairway {

class Engine;

// Which of an engine's immediates are whose: of a counter space that the user made, or of a communicator. Any thread.
class CounterRanges {
 public:
  struct Range {
    std::uint64_t first = 0, end = 0;
    std::string owner;  // as errors name it
  };

  // Takes these if all are free; otherwise says who has some of them, and takes none.
  std::optional<Range> take(std::uint64_t first, std::uint64_t end, std::string owner) {
    const std::lock_guard lock(mutex_);
    // Behind the last one that begins before `end`.
    if (const auto behind = ranges_.lower_bound(end); behind != ranges_.begin())
      if (const Range& last = std::prev(behind)->second; last.end > first) return last;
    ranges_.emplace(first, Range{first, end, std::move(owner)});
    return std::nullopt;
  }
  void give_back(std::uint64_t first) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(first);
  }

 private:
  std::mutex mutex_;  // guards ranges_
  std::map<std::uint64_t, Range> ranges_;
};

// That engine's (engine/engine.cc), which may end before who has a range. Null: it was moved from.
std::shared_ptr<CounterRanges> counter_ranges_of(const Engine& engine);

}  // namespace fairway
