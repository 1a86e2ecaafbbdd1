#pragma once

#include <cstddef>

#include "fairway/collectives.h"

// The collectives that combine, and what a rank has of them.
namespace fairway {

inline constexpr CollectiveKind kCombining[] = {CollectiveKind::all_reduce, CollectiveKind::reduce,
                                                CollectiveKind::reduce_scatter};

// The element that rank `rank` gets at `at` of its output is the one at `at` of the whole, from here on.
inline std::size_t first_of(CollectiveKind kind, int rank, std::size_t count) {
  return kind == CollectiveKind::reduce_scatter ? static_cast<std::size_t>(rank) * count : 0;
}

inline std::size_t inputs_of(CollectiveKind kind, int size, std::size_t count) {
  return kind == CollectiveKind::reduce_scatter ? static_cast<std::size_t>(size) * count : count;
}

}  // namespace fairway
