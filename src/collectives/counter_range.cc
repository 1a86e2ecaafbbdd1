#include "collectives/counter_range.h"

#include <algorithm>

#include <fmt/format.h>

namespace fairway::collectives {

Result<CounterRange> CounterRange::take(const Engine& engine, const std::string& name, std::uint64_t first,
                                        std::uint32_t count, bool exactly) {
  std::shared_ptr<CounterRanges> ranges = counter_ranges_of(engine);
  if (ranges == nullptr) return Status(ErrorCode::closed, "the engine was moved from");
  const std::uint64_t limit = exactly ? std::uint64_t{1} << 32 : kEnd;
  std::uint64_t at = first;
  for (bool from_begin = false;;) {
    if (at + count > limit) {
      if (exactly)
        return Status(ErrorCode::invalid_argument,
                      fmt::format("first_immediate: a communicator takes {} counters, and there are {} from {} on",
                                  count, limit - std::min(at, limit), at));
      if (from_begin) return Status(ErrorCode::resource_exhausted, "communicators of this engine have all counters");
      from_begin = true;
      at = kBegin;
      continue;
    }
    const auto other = ranges->take(at, at + count, fmt::format("the communicator \"{}\"", name));
    if (!other) break;
    if (exactly)
      return Status(ErrorCode::already_exists,
                    fmt::format("first_immediate: of the counters {} to {} {} has those from {} to {}: choose others",
                                at, at + count - 1, other->owner, other->first, other->end - 1));
    at = other->end;
  }
  return CounterRange(std::move(ranges), static_cast<std::uint32_t>(at), count);
}

CounterRange::~CounterRange() {
  if (ranges_ != nullptr) ranges_->give_back(first_);
}

}  // namespace fairway::collectives
