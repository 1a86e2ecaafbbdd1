#pragma once

#include <cstdint>

#include "engine/remote_regions.h"
#include "engine/transfers/transfer.h"
#include "transport/region_table.h"

// Bounds checks of a transfer's blocks, right before each use, because a region may end at any time.
namespace fairway::engine {

// Not reached by a CPU; false also once the region has ended.
bool in_device(const transport::RegionTable& table, RegionId id);

// Part of a block of the transfer, on both sides; ok, and where it begins here, or why not.
Status resolve(const transport::RegionTable& regions, const RemoteRegions& remotes, const Transfer& transfer,
               std::uint64_t index, const Block& block, std::uint64_t offset, std::uint64_t length, std::byte*& local);

}  // namespace fairway::engine
