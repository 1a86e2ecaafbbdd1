#pragma once

#include <cstddef>

namespace fairway::sys {

// Whether this process's CPUs can read the first and the last byte there. Where the kernel refuses to answer: true. Any
// thread.
bool readable(const void* address, std::size_t size);

}  // namespace fairway::sys
