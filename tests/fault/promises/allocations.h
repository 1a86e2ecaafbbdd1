#pragma once

#include <cstddef>
#include <cstdint>

namespace fairway::promises {

// Counters of operator new and delete in this program; allocations.cc replaces both.
std::uint64_t allocations_of_this_thread();
std::uint64_t allocations_of_all_threads();
std::int64_t bytes_allocated();  // and not freed

}  // namespace fairway::promises
