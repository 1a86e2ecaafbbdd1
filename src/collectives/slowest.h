#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "fairway/collectives.h"

namespace fairway::collectives {

// Collective: the time of one of `many` operations at the slowest rank, of which each rank gives how long all took.
inline Status slowest(Communicator& group, std::chrono::steady_clock::duration took, std::uint64_t many,
                      std::uint64_t& ns) {
  constexpr std::uint64_t kLongest = 10'000'000'000;
  const auto own = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  std::uint64_t mine = std::clamp<std::uint64_t>(own / many, 1, kLongest);
  return group.run({.kind = CollectiveKind::all_reduce,
                    .input = &mine,
                    .output = &ns,
                    .count = 1,
                    .type = DataType::u64,
                    .reduction = Reduction::max});
}

}  // namespace fairway::collectives
