#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "transport/region_slot.h"

namespace fairway::transport {

// The regions of one engine: the one place that says whether bytes may be touched (promise 4). Transports whose
// software applies what a peer asks for resolve every frame here; those whose hardware does, register beside it.
// resolve() is lock-free and may run on any thread; add, revoke and remove take a lock and are for the callers of the
// API.
class RegionTable {
 public:
  explicit RegionTable(std::uint32_t capacity);

  // resource_exhausted when `capacity` regions are live.
  Result<RegionId> add(std::byte* address, std::uint64_t size_bytes, MemoryKind kind, Access access);
  // From now on resolve() refuses the region. What resolved before may still be in use: the caller waits until every
  // worker has passed a step, then calls remove().
  Status revoke(RegionId id);
  // Frees the slot for a new generation.
  void remove(RegionId id);

  struct Resolved {
    std::byte* address = nullptr;
    MemoryKind kind = MemoryKind::host;
  };
  // ok and the address, or revoked / access_denied / out_of_range without touching memory. Overflow of offset + length
  // is out_of_range. Access::none asks for local use, which needs no permission.
  ErrorCode resolve(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed, Resolved& out) const;

  // The region as registered; revoked when it is not live.
  Result<Region> find(RegionId id) const;
  std::uint32_t live() const;

 private:
  bool read(RegionId id, Region& out) const;

  std::unique_ptr<RegionSlot<>[]> slots_;
  std::uint32_t capacity_;
  mutable std::mutex mutex_;  // guards free_ and the writers of slots_
  std::vector<std::uint32_t> free_;
};

}  // namespace fairway::transport
