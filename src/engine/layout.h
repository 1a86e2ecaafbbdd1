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
// The first block from `block` on that holds bytes, or block_count(). Checks at most kEmptyAtOnce entries of a list, so
// the block that it returns may be empty too; then call again.
std::uint64_t skip_empty(const Layout& layout, std::uint64_t block);
inline constexpr std::uint64_t kEmptyAtOnce = 1024;
// The first block of [block, block + count) that reaches beyond regions of these sizes; block + count: none does.
std::uint64_t first_outside(const Layout& layout, std::uint64_t block, std::uint64_t count, std::uint64_t local_size,
                            std::uint64_t remote_size);
// All blocks have the same length and regions: one slice may carry several of them where a link takes the shape
// natively.
bool is_regular(const Layout& layout);

// Whether a block lies there.
bool touches(const Layout& layout, RegionId local);
bool touches(const Layout& layout, RemoteRegionId remote);

// The checks that need not read the caller's arrays: arrays of equal length, no pages of size zero, no overflow.
Status check_layout(const Layout& layout);

}  // namespace fairway::engine
