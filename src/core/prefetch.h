#pragma once

namespace fairway {

// A hint: this thread writes to that cache line soon. Fetching the line to be written takes as long as some hundred
// instructions where another core has it, so ask ahead; it needs no valid address and changes nothing.
inline void prefetch_to_write(const void* address) {
#if defined(__x86_64__)
  // Compilers make a prefetch for reading of theirs, unless they are told of a newer processor. Older ones ignore it.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace fairway
