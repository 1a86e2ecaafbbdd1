#include "engine/local_regions.h"

#include <utility>

namespace fairway::engine {

Result<RegionId> LocalRegions::add_own(std::byte* address, std::uint64_t size_bytes, Access access, int fd) {
  const auto id = table_.add(address, size_bytes, MemoryKind::host, access);
  if (!id) return id.status();
  transport::MemoryDescription memory;
  memory.id = *id;
  memory.address = address;
  memory.size_bytes = size_bytes;
  memory.access = access;
  memory.memory_fd = fd;
  add(*id, register_with_all(memory), {fd, 0}, {});
  return *id;
}

std::uint64_t LocalRegions::partly(RegionId id) const {
  std::uint64_t out = 0;
  if (id.slot < regions_.size())
    for (const auto& each : regions_[id.slot].registration.partly) out |= std::uint64_t{1} << each.transport;
  return out;
}

Status LocalRegions::why_without(RegionId id, std::uint16_t transport) const {
  if (id.slot >= regions_.size()) return {};
  for (const auto& [refusing, why] : regions_[id.slot].registration.refused)
    if (refusing == transport) return why;
  return {};
}

std::string_view LocalRegions::how_with(RegionId id, std::uint16_t transport) const {
  if (id.slot >= regions_.size()) return {};
  for (const auto& [with, how] : regions_[id.slot].registration.how)
    if (with == transport) return how;
  return {};
}

Status LocalRegions::why_partly(RegionId id, std::uint16_t transport, transport::DeviceIndex device) const {
  if (id.slot < regions_.size())
    for (const auto& each : regions_[id.slot].registration.partly)
      if (each.transport == transport && each.device == device) return each.why;
  return {};
}

Place LocalRegions::place_of(RegionId id, const Expectation* machine) {
  if (machine == nullptr || id.slot >= regions_.size()) return kNoPlace;
  Local& local = regions_[id.slot];
  if (!local.place) local.place = machine->place_of(local.at.place, local.at.numa_node);
  return *local.place;
}

Description LocalRegions::describe(RegionId id) const {
  Description description;
  const auto region = table_.find(id);
  if (!region) return description;
  description.region = id;
  description.size_bytes = region->size_bytes;
  description.kind = region->kind;
  description.access = region->access;
  description.keys = regions_[id.slot].registration.keys;
  return description;
}

}  // namespace fairway::engine
