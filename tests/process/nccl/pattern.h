#pragma once

#include <cstddef>
#include <cstdint>

#include "process/nccl/ranks.h"

// What a message holds, so that none is taken for another.
namespace fairway::nccl {

inline std::byte pattern(std::uint64_t seed, std::uint64_t i) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 29 + seed * 197) >> 1);
}
inline void fill(std::byte* to, std::size_t size, std::uint64_t seed) {
  for (std::size_t i = 0; i < size; ++i) to[i] = pattern(seed, i);
}
inline void compare(const std::byte* bytes, std::size_t size, std::uint64_t seed) {
  for (std::size_t i = 0; i < size; ++i)
    if (bytes[i] != pattern(seed, i))
      throw Failure("byte " + std::to_string(i) + " of message " + std::to_string(seed));
}

}  // namespace fairway::nccl
