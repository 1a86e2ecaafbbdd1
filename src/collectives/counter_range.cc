#include "collectives/counter_range.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>

namespace fairway::collectives {
namespace {

// Of this process: an engine is known by its address, at which it stays while communicators use it.
struct Taken {
  struct Range {
    std::uint64_t end = 0;
    std::string name;
  };
  std::mutex mutex;  // guards the map
  std::map<std::pair<const Engine*, std::uint64_t>, Range> ranges;

  // The range of that engine that has some of these counters; the end: none has.
  auto find(const Engine* engine, std::uint64_t first, std::uint64_t end) {
    auto found = ranges.lower_bound({engine, end});  // behind the last one that begins before `end`
    if (found == ranges.begin()) return ranges.end();
    --found;
    return found->first.first == engine && found->second.end > first ? found : ranges.end();
  }
};

// For the process's life: a communicator may be a static object, and end after others.
Taken& taken() {
  static Taken* const all = new Taken;
  return *all;
}

}  // namespace

Result<CounterRange> CounterRange::take(const Engine& engine, const std::string& name, std::uint64_t first,
                                        std::uint32_t count, bool exactly) {
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
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
    const auto found = all.find(&engine, at, at + count);
    if (found == all.ranges.end()) break;
    if (exactly)
      return Status(ErrorCode::already_exists,
                    fmt::format("first_immediate: of the counters {} to {} the communicator \"{}\" has those from {} "
                                "to {}: choose others",
                                at, at + count - 1, found->second.name, found->first.second, found->second.end - 1));
    at = found->second.end;
  }
  all.ranges.emplace(std::pair{&engine, at}, Taken::Range{at + count, name});
  return CounterRange(engine, static_cast<std::uint32_t>(at), count);
}

CounterRange::~CounterRange() {
  if (engine_ == nullptr) return;
  Taken& all = taken();
  const std::lock_guard lock(all.mutex);
  all.ranges.erase({engine_, first_});
}

}  // namespace fairway::collectives
