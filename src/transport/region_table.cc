#include "transport/region_table.h"

#include <string>

namespace fairway::transport {

RegionTable::RegionTable(std::uint32_t capacity) : slots_(new Slot[capacity]), capacity_(capacity) {
  free_.reserve(capacity);
  for (std::uint32_t slot = capacity; slot > 0; --slot) free_.push_back(slot - 1);
}

Result<RegionId> RegionTable::add(std::byte* address, std::uint64_t size_bytes, MemoryKind kind, Access access) {
  std::lock_guard lock(mutex_);
  if (free_.empty())
    return Status(ErrorCode::resource_exhausted, "all " + std::to_string(capacity_) +
                                                     " region slots are in use: raise EngineOptions::max_regions or "
                                                     "register fewer, larger regions");
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  std::atomic_thread_fence(std::memory_order_release);  // the fields below come after the revocation before them
  slot.address.store(address, std::memory_order_relaxed);
  slot.size_bytes.store(size_bytes, std::memory_order_relaxed);
  slot.kind_and_access.store(
      static_cast<std::uint16_t>(static_cast<unsigned>(kind) << 8 | static_cast<unsigned>(access)),
      std::memory_order_relaxed);
  // The slot's even number becomes odd: live. Release publishes the fields; a reader that saw the old generation and new
  // fields notices by reading the generation again.
  const std::uint32_t generation = slot.generation.load(std::memory_order_relaxed) + 1;
  slot.generation.store(generation, std::memory_order_release);
  return RegionId{index, generation};
}

Status RegionTable::revoke(RegionId id) {
  std::lock_guard lock(mutex_);
  if (id.slot >= capacity_ || !id || slots_[id.slot].generation.load(std::memory_order_relaxed) != id.generation)
    return {ErrorCode::revoked, "the region is not registered (deregistered before, or of another engine)"};
  slots_[id.slot].generation.store(id.generation + 1, std::memory_order_seq_cst);
  return {};
}

void RegionTable::remove(RegionId id) {
  std::lock_guard lock(mutex_);
  if (id.slot < capacity_ && slots_[id.slot].generation.load(std::memory_order_relaxed) == id.generation + 1)
    free_.push_back(id.slot);
}

bool RegionTable::read(RegionId id, Region& out) const {
  if (id.slot >= capacity_ || (id.generation & 1) == 0) return false;
  const Slot& slot = slots_[id.slot];
  if (slot.generation.load(std::memory_order_acquire) != id.generation) return false;
  out.id = id;
  out.address = slot.address.load(std::memory_order_relaxed);
  out.size_bytes = slot.size_bytes.load(std::memory_order_relaxed);
  const auto packed = slot.kind_and_access.load(std::memory_order_relaxed);
  out.kind = static_cast<MemoryKind>(packed >> 8);
  out.access = static_cast<Access>(packed & 0xff);
  std::atomic_thread_fence(std::memory_order_acquire);
  return slot.generation.load(std::memory_order_relaxed) == id.generation;
}

ErrorCode RegionTable::resolve(RegionId id, std::uint64_t offset, std::uint64_t length, Access needed,
                               Resolved& out) const {
  Region region;
  if (!read(id, region)) return ErrorCode::revoked;
  if (!includes(region.access, needed)) return ErrorCode::access_denied;
  if (offset > region.size_bytes || length > region.size_bytes - offset) return ErrorCode::out_of_range;
  out = {region.address + offset, region.kind};
  return ErrorCode::ok;
}

Result<Region> RegionTable::find(RegionId id) const {
  Region region;
  if (!read(id, region))
    return Status(ErrorCode::revoked, "the region is not registered (deregistered before, or of another engine)");
  return region;
}

std::uint32_t RegionTable::live() const {
  std::lock_guard lock(mutex_);
  return capacity_ - static_cast<std::uint32_t>(free_.size());
}

}  // namespace fairway::transport
