#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace fairway::tool::bench {

// Eight bytes that differ for every position and seed.
inline std::uint64_t pattern(std::uint64_t seed, std::uint64_t word) {
  std::uint64_t x = (word + 1) * 0x9e3779b97f4a7c15 ^ seed * 0xd6e8feb86659fd93;
  x ^= x >> 29;
  return x * 0xbf58476d1ce4e5b9;
}

inline void fill(std::byte* bytes, std::uint64_t size, std::uint64_t seed) {
  std::uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const std::uint64_t word = pattern(seed, i / 8);
    std::memcpy(bytes + i, &word, 8);
  }
  const std::uint64_t last = pattern(seed, i / 8);
  std::memcpy(bytes + i, &last, size - i);
}

// How many bytes differ from fill()'s.
inline std::uint64_t wrong_bytes(const std::byte* bytes, std::uint64_t size, std::uint64_t seed) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < size; i += 8) {
    const std::uint64_t word = pattern(seed, i / 8);
    const std::uint64_t length = size - i < 8 ? size - i : 8;
    if (std::memcmp(bytes + i, &word, length) == 0) continue;
    for (std::uint64_t k = 0; k < length; ++k) wrong += bytes[i + k] != static_cast<std::byte>(word >> (8 * k)) ? 1 : 0;
  }
  return wrong;
}

// 0 .. count - 1 in a shuffled order, always the same.
inline std::vector<std::uint64_t> shuffled(std::uint64_t count) {
  std::vector<std::uint64_t> index(count);
  std::iota(index.begin(), index.end(), 0);
  std::uint64_t random = 88172645463325252;  // xorshift64 (Marsaglia 2003)
  for (std::uint64_t i = count; i > 1; --i) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    std::swap(index[i - 1], index[random % i]);
  }
  return index;
}

}  // namespace fairway::tool::bench
