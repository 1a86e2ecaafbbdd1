#pragma once

#include <cstddef>

namespace fairway::sys {

// The NUMA node of the pages, by sampling three of them. -1: not present yet, on several nodes, or unknown to the
// kernel. Touches no page.
int numa_node_of(const void* address, std::size_t size_bytes);

}  // namespace fairway::sys
