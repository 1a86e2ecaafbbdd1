#include "engine/local_regions.h"

#include <utility>

namespace fairway::engine {

Result<RegionId> LocalRegions::add_own(std::byte* address, std::uint64_t size_bytes, Access access, int fd) {
  const auto id = table_.add(address, size_bytes, MemoryKind::host, access);
  if (!id) return id.status();
  const MemorySource source{MemoryKind::host, fd, 0};
  add(*id, register_with_all({*id, address, size_bytes, MemoryKind::host, access}, source), {fd, 0}, {});
  return *id;
}

Status LocalRegions::why_without(RegionId id, std::uint16_t transport) const {
  if (id.slot >= regions_.size()) return {};
  for (const auto& [refusing, why] : regions_[id.slot].registration.refused)
    if (refusing == transport) return why;
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
