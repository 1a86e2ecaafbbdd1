#pragma once

#include <cstddef>

namespace fairway::sys {

// The NUMA node whose memory the pages are, by looking at three of them; -1: none is there yet, they are of several, or
// the kernel does not say. Touches nothing.
int numa_node_of(const void* address, std::size_t size_bytes);

}  // namespace fairway::sys
