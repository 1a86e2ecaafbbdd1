#include "engine/layout.h"

#include <algorithm>
#include <limits>

namespace fairway::engine {
namespace {

bool multiplies(std::uint64_t a, std::uint64_t b) {
  return b == 0 || a <= std::numeric_limits<std::uint64_t>::max() / b;
}

struct Count {
  std::uint64_t operator()(const Extent&) const { return 1; }
  std::uint64_t operator()(std::span<const Extent> list) const { return list.size(); }
  std::uint64_t operator()(const Strided& strided) const { return strided.count; }
  std::uint64_t operator()(const Paged& paged) const { return paged.local_index.size(); }
};

struct Total {
  std::uint64_t operator()(const Extent& extent) const { return extent.local.length; }
  std::uint64_t operator()(std::span<const Extent> list) const {
    std::uint64_t sum = 0;  // no further than 2^64: one of such extents lies outside its region
    for (const Extent& extent : list)
      sum += std::min(extent.local.length, std::numeric_limits<std::uint64_t>::max() - sum);
    return sum;
  }
  std::uint64_t operator()(const Strided& strided) const { return strided.first.local.length * strided.count; }
  std::uint64_t operator()(const Paged& paged) const { return paged.page_bytes * paged.local_index.size(); }
};

Block block_of(const Extent& extent) {
  return {extent.local.region, extent.local.offset, extent.remote.region, extent.remote.offset, extent.local.length};
}

struct At {
  std::uint64_t index;
  Block operator()(const Extent& extent) const { return block_of(extent); }
  Block operator()(std::span<const Extent> list) const { return block_of(list[index]); }
  Block operator()(const Strided& strided) const {
    Block block = block_of(strided.first);
    block.local_offset += index * strided.local_stride;
    block.remote_offset += index * strided.remote_stride;
    return block;
  }
  Block operator()(const Paged& paged) const {
    return {paged.local, paged.local_index[index] * paged.local_unit, paged.remote,
            paged.remote_index[index] * paged.remote_unit, paged.page_bytes};
  }
};

struct Check {
  Status operator()(const Extent&) const { return {}; }
  Status operator()(std::span<const Extent>) const { return {}; }
  Status operator()(const Strided& strided) const {
    if (strided.count == 0) return {ErrorCode::invalid_argument, "a strided layout has count 0: it moves nothing"};
    const std::uint64_t steps = strided.count - 1;
    if (!multiplies(steps, strided.local_stride) || !multiplies(steps, strided.remote_stride) ||
        !multiplies(strided.count, strided.first.local.length))
      return {ErrorCode::out_of_range, "a strided layout ends beyond 2^64 bytes: check count and strides"};
    return {};
  }
  Status operator()(const Paged& paged) const {
    if (paged.local_index.size() != paged.remote_index.size())
      return {ErrorCode::invalid_argument, "a paged layout has " + std::to_string(paged.local_index.size()) +
                                               " local and " + std::to_string(paged.remote_index.size()) +
                                               " remote indices: give one of each per page"};
    if (!multiplies(paged.page_bytes, paged.local_index.size()))
      return {ErrorCode::out_of_range, "a paged layout is larger than 2^64 bytes: check page_bytes"};
    return {};
  }
};

}  // namespace

std::uint64_t block_count(const Layout& layout) {
  return std::visit(Count{}, layout);
}
std::uint64_t total_bytes(const Layout& layout) {
  return std::visit(Total{}, layout);
}
Block block_at(const Layout& layout, std::uint64_t index) {
  return std::visit(At{index}, layout);
}
std::uint64_t first_outside(const Layout& layout, std::uint64_t block, std::uint64_t count, std::uint64_t local_size,
                            std::uint64_t remote_size) {
  const auto lies = [](std::uint64_t at, std::uint64_t length, std::uint64_t size) {
    return at <= size && length <= size - at;
  };
  if (const auto* paged = std::get_if<Paged>(&layout)) {  // the largest index that fits is found once
    const auto most = [&](std::uint64_t size, std::uint64_t unit) {
      return unit == 0 ? ~std::uint64_t{0} : (size - paged->page_bytes) / unit;
    };
    if (paged->page_bytes > local_size || paged->page_bytes > remote_size) return block;
    const std::uint64_t here = most(local_size, paged->local_unit), there = most(remote_size, paged->remote_unit);
    for (std::uint64_t i = block; i < block + count; ++i)
      if (paged->local_index[i] > here || paged->remote_index[i] > there) return i;
    return block + count;
  }
  for (std::uint64_t i = block; i < block + count; ++i) {
    const Block at = block_at(layout, i);
    if (!lies(at.local_offset, at.length, local_size) || !lies(at.remote_offset, at.length, remote_size)) return i;
  }
  return block + count;
}
std::uint64_t skip_empty(const Layout& layout, std::uint64_t block) {
  const std::uint64_t count = block_count(layout);
  if (block >= count || block_at(layout, block).length > 0) return block;
  if (is_regular(layout)) return count;
  const std::uint64_t last = block + std::min(count - block, kEmptyAtOnce);
  while (block < last && block_at(layout, block).length == 0) ++block;
  return block;
}

namespace {

template <class Region, class Of>
bool any_block(const Layout& layout, Region region, Of of) {
  if (const auto* list = std::get_if<std::span<const Extent>>(&layout))
    return std::any_of(list->begin(), list->end(), [&](const Extent& each) { return of(block_of(each)) == region; });
  return block_count(layout) > 0 && of(block_at(layout, 0)) == region;
}

}  // namespace

bool touches(const Layout& layout, RegionId local) {
  return any_block(layout, local, [](const Block& block) { return block.local; });
}
bool touches(const Layout& layout, RemoteRegionId remote) {
  return any_block(layout, remote, [](const Block& block) { return block.remote; });
}

bool is_regular(const Layout& layout) {
  return std::holds_alternative<Strided>(layout) || std::holds_alternative<Paged>(layout);
}
Status check_layout(const Layout& layout) {
  return std::visit(Check{}, layout);
}

}  // namespace fairway::engine
