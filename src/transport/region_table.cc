#include "transport/region_table.h"

#include <new>
#include <string>
#include <utility>

namespace fairway::transport {

RegionTable::RegionTable(std::uint32_t capacity)
    : own_(new RegionSlot<>[capacity]), slots_(own_.get()), capacity_(capacity), view_(slots_, capacity) {
  free_.reserve(capacity);
  for (std::uint32_t slot = capacity; slot > 0; --slot) free_.push_back(slot - 1);
}

Status RegionTable::share() {
  std::lock_guard lock(mutex_);
  if (shared_.fd() >= 0) return {};
  if (free_.size() != capacity_) return {ErrorCode::invalid_argument, "regions exist already"};
  auto file = sys::MemoryFile::make(capacity_ * sizeof(RegionSlot<>), sys::MemoryFile::Writers::owner);
  if (!file) return file.status();
  shared_ = std::move(*file);
  slots_ = new (shared_.address()) RegionSlot<>[capacity_];
  view_ = RegionView(slots_, capacity_);
  own_.reset();
  return {};
}

Result<RegionId> RegionTable::add(std::byte* address, std::uint64_t size_bytes, MemoryKind kind, Access access,
                                  bool read_only) {
  std::lock_guard lock(mutex_);
  if (free_.empty())
    return Status(ErrorCode::resource_exhausted, "all " + std::to_string(capacity_) +
                                                     " region slots are in use: raise EngineOptions::max_regions or "
                                                     "register fewer, larger regions");
  const std::uint32_t index = free_.back();
  free_.pop_back();
  return RegionId{index, slots_[index].publish(address, size_bytes, kind, access, read_only)};
}

Status RegionTable::revoke(RegionId id) {
  std::lock_guard lock(mutex_);
  if (id.slot >= capacity_ || !id || slots_[id.slot].generation() != id.generation)
    return {ErrorCode::revoked, "the region is not registered (deregistered before, or of another engine)"};
  slots_[id.slot].revoke();
  return {};
}

void RegionTable::remove(RegionId id) {
  std::lock_guard lock(mutex_);
  if (id.slot < capacity_ && slots_[id.slot].generation() == id.generation + 1) free_.push_back(id.slot);
}

bool RegionView::read(RegionId id, Region& out) const {
  if (id.slot >= capacity_ || (id.generation & 1) == 0) return false;
  out.id = id;
  return slots_[id.slot].read(id.generation, out);
}

Result<Region> RegionTable::find(RegionId id) const {
  Region region;
  if (!view_.read(id, region))
    return Status(ErrorCode::revoked, "the region is not registered (deregistered before, or of another engine)");
  return region;
}

bool RegionTable::has_ended(RegionId id) const {
  if (id.slot >= capacity_ || (id.generation & 1) == 0) return false;
  const std::uint32_t since = slots_[id.slot].generation() - id.generation;  // generations come round again
  return since != 0 && since < std::uint32_t{1} << 31;
}

std::uint32_t RegionTable::live() const {
  std::lock_guard lock(mutex_);
  return capacity_ - static_cast<std::uint32_t>(free_.size());
}

}  // namespace fairway::transport
