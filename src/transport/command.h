#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

// A set of Op or Shape, for Capabilities.
template <class... Each>
constexpr Bits bits(Each... each) {
  return static_cast<Bits>((static_cast<unsigned>(each) | ...));
}

// A slice with its handles resolved to what both ends understand.
struct Command {
  Slice slice;
  RegionId region;                   // at the target
  std::byte* local_begin = nullptr;  // the initiator's registered memory: every block must lie in it
  std::uint64_t local_size = 0;
  MemoryKind local_kind = MemoryKind::host;
};

// Fills `out` with `slice`, whose remote handle names `remote`; a slice of one block gets a count of one. Checks what
// this side can: the target checks its own bounds and permissions, and BlockCursor checks each block's local bounds.
ErrorCode prepare(const Capabilities& can, const RegionTable& regions, const Slice& slice, const RegionId* remote,
                  Command& out);

// The text of a slice's failure, for its event.
const char* describe_failure(ErrorCode code);

}  // namespace fairway::transport
