#pragma once

#include <cstdint>

#include "fairway/request.h"
#include "fairway/status.h"

namespace fairway::engine {

// Where one contiguous block of a layout lies, on both sides. Not yet checked against any region.
struct Block {
  RegionId local;
  std::uint64_t local_offset = 0;
  RemoteRegionId remote;
  std::uint64_t remote_offset = 0;
  std::uint64_t length = 0;
};

// The four forms of a layout read as one: `block_count` blocks of contiguous bytes.
std::uint64_t block_count(const Layout& layout);
std::uint64_t total_bytes(const Layout& layout);
Block block_at(const Layout& layout, std::uint64_t index);
// From `block` on the first one that holds bytes, or block_count(). Looks at no more than kEmptyAtOnce of a list: what
// it gives may be empty too, and then there is more to look at.
std::uint64_t skip_empty(const Layout& layout, std::uint64_t block);
inline constexpr std::uint64_t kEmptyAtOnce = 1024;
// Of [block, block + count), the first that leaves regions of these sizes; block + count: none does.
std::uint64_t first_outside(const Layout& layout, std::uint64_t block, std::uint64_t count, std::uint64_t local_size,
                            std::uint64_t remote_size);
// All blocks have the same length and regions: one slice may carry several of them where a link takes the shape
// natively.
bool is_regular(const Layout& layout);

// Whether a block lies there.
bool touches(const Layout& layout, RegionId local);
bool touches(const Layout& layout, RemoteRegionId remote);

// What can be said without touching the caller's arrays: arrays of one length, no zero page size with pages, no
// overflow.
Status check_layout(const Layout& layout);

}  // namespace fairway::engine
