#pragma once

#include <cstddef>

namespace fairway::transport::host {

// From this size of a slice on, bytes are stored past the caches: the target is unlikely to read them all from there,
// and a store that first fetches its line moves half as much again. Measured: docs/shm.md.
inline constexpr std::size_t kStreamFrom = std::size_t{2} << 20;

// Copies between memories that may overlap when not `streaming`. Streaming stores are ordered before this returns.
void copy(std::byte* to, const std::byte* from, std::size_t size, bool streaming);

}  // namespace fairway::transport::host
