#pragma once

#include <cstdint>
#include <string>

namespace fairway::leaks {

// What this process, and for /dev/shm this machine, holds.
struct Held {
  std::uint64_t descriptors = 0;
  std::uint64_t mappings = 0;
  std::uint64_t threads = 0;
  std::uint64_t named_memory = 0;  // entries of /dev/shm
  std::uint64_t heap_bytes = 0;    // 0 under sanitizers, whose heap tells nothing

  static Held now();
  std::string text() const;  // for another process
  static Held of(const std::string& text);
};

// Empty when `after` holds no more than `before`: as many descriptors, mappings, threads and names, and a heap that has
// not grown by more than `heap_slack` bytes. Else what is more.
std::string more(const Held& before, const Held& after, std::uint64_t heap_slack);

}  // namespace fairway::leaks
