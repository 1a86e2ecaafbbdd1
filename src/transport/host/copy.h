#pragma once

#include <cstddef>

namespace fairway::transport::host {

// Slices of at least this size use non-temporal stores: the target is unlikely to read them from the cache, and an
// ordinary store also reads its line first, which is 1.5 times the traffic. Measured: docs/shm.md.
inline constexpr std::size_t kStreamFrom = std::size_t{2} << 20;

// Copies bytes. The memories may overlap only if not `streaming`. Orders non-temporal stores before it returns.
void copy(std::byte* to, const std::byte* from, std::size_t size, bool streaming);

}  // namespace fairway::transport::host
