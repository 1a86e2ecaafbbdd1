#pragma once

#include <cstddef>
#include <cstdint>

namespace fairway::promises {

// What operator new and delete of this program have seen: allocations.cc replaces them.
std::uint64_t allocations_of_this_thread();
std::uint64_t allocations_of_all_threads();
std::int64_t bytes_allocated();  // and not freed

}  // namespace fairway::promises
