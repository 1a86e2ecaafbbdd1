#pragma once

#include <cstddef>

namespace fairway::sys {

// Whether the CPU can read the first and the last byte of the range. True where the kernel refuses to answer. Any
// thread.
bool readable(const void* address, std::size_t size);
// Whether it can write them. Commits their pages.
bool writable(void* address, std::size_t size);

}  // namespace fairway::sys
