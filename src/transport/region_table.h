#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "sys/memory_file.h"
#include "transport/region_slot.h"

namespace fairway::transport {

// Read access to the slots of a region table: this engine's, or a peer's that is mapped here. resolve() is lock-free
// and may run on any thread. A hostile peer's table can give wrong answers but cannot make it hang. A value; borrows
// the slots.
class RegionView {
 public:
  RegionView() = default;
  RegionView(const RegionSlot<>* slots, std::uint32_t capacity) : slots_(slots), capacity_(capacity) {}

  struct Resolved {
    std::byte* address = nullptr;
    MemoryKind kind = MemoryKind::host;
  };
  // ok and the address, or revoked, access_denied or out_of_range, without touching memory. If offset + length
  // overflows: out_of_range. Access::none is for local use, which needs no permission.
  ErrorCode resolve(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed, Resolved& out) const {
    if (id.slot >= capacity_ || (id.generation & 1) == 0) return ErrorCode::revoked;
    Region region;
    if (!slots_[id.slot].read(id.generation, region)) return ErrorCode::revoked;
    if (!includes(region.access, needed)) return ErrorCode::access_denied;
    if (offset > region.size_bytes || length > region.size_bytes - offset) return ErrorCode::out_of_range;
    out = {region.address == nullptr ? nullptr : region.address + offset, region.kind};
    return ErrorCode::ok;
  }
  // False when that region is not live.
  bool read(RegionId id, Region& out) const;

 private:
  const RegionSlot<>* slots_ = nullptr;
  std::uint32_t capacity_ = 0;
};

// The regions of one engine: the only place that decides whether memory may be accessed (promise 4). Software
// transports resolve every request of a peer here; for RDMA transports the NIC checks its own registration as well.
// resolve() is lock-free and may run on any thread; add, revoke and remove take a lock and serve API calls.
class RegionTable {
 public:
  explicit RegionTable(std::uint32_t capacity);

  // resource_exhausted when `capacity` regions are live.
  // `read_only`: this process cannot write it.
  Result<RegionId> add(std::byte* address, std::uint64_t size_bytes, MemoryKind kind, Access access,
                       bool read_only = false);
  // Makes resolve() refuse the region. Memory that was resolved before may still be in use: the caller waits until
  // every worker has passed a step, then calls remove().
  Status revoke(RegionId id);
  // Frees the slot for a new generation.
  void remove(RegionId id);

  using Resolved = RegionView::Resolved;
  ErrorCode resolve(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed, Resolved& out) const {
    return view_.resolve(id, offset, length, needed, out);
  }

  // The same for access by this process's CPU: unsupported if only a device reaches the memory.
  ErrorCode resolve_for_cpu(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed,
                            Resolved& out) const {
    const ErrorCode code = view_.resolve(id, offset, length, needed, out);
    return code == ErrorCode::ok && !reached_by_cpu(out.kind) ? ErrorCode::unsupported : code;
  }

  bool read(RegionId id, Region& out) const { return view_.read(id, out); }  // as find(), without words

  // Whether this process can write a region that resolve() has found. Lock-free.
  bool is_writable(RegionId id) const { return slots_[id.slot].writable(); }

  // Where the region's slot stays, for RegionSlot::is_live(); of an id that resolve() or find() has found.
  const RegionSlot<>& slot_of(RegionId id) const { return slots_[id.slot]; }

  // Moves the slots to shared memory that other processes of this host can only read. Call it before the first add();
  // a second call does nothing.
  Status share();
  int file() const { return shared_.fd(); }  // of capacity() slots; -1: not shared
  std::uint32_t capacity() const { return capacity_; }

  // The region as registered; revoked when it is not live.
  Result<Region> find(RegionId id) const;
  // Whether it was registered here and has been deregistered.
  bool has_ended(RegionId id) const;
  std::uint32_t live() const;

 private:
  std::unique_ptr<RegionSlot<>[]> own_;
  sys::MemoryFile shared_;  // holds the slots instead, once shared
  RegionSlot<>* slots_;
  std::uint32_t capacity_;
  RegionView view_;
  mutable std::mutex mutex_;  // guards free_ and the writers of slots_
  std::vector<std::uint32_t> free_;
};

}  // namespace fairway::transport
