#include "engine/remote_regions.h"

#include <algorithm>
#include <utility>

#include "engine/registration.h"
#include "transport/gpu_access.h"

namespace fairway::engine {

RemoteRegionId RemoteRegions::import(const RegionOwner& owner, Description description, Status& error) {
  if (const auto known = find(owner.id, description.region)) return *known;
  const auto bounds = bounds_.add(nullptr, description.size_bytes, description.kind, description.access);
  if (!bounds) {
    error = {ErrorCode::resource_exhausted,
             "all remote region slots are in use: raise EngineOptions::max_remote_regions or release some"};
    return {};
  }
  if (bounds->slot >= regions_.size()) regions_.resize(bounds->slot + 1);
  Remote& remote = regions_[bounds->slot];
  remote = {bounds->generation, owner.id, std::move(description), {}, 0, 0, {}};
  remote.handles.resize(transports_.size());
  for (std::uint16_t t = 0; t < transports_.size(); ++t)
    if (needs_keys(*transports_[t])) {
      const auto keys = keys_of(owner, remote, t);
      if (keys.empty()) remote.without |= std::uint64_t{1} << t;
      if (std::any_of(keys.begin(), keys.end(), [](const auto& key) { return key.empty(); }))
        remote.partly |= std::uint64_t{1} << t;
    }
  known_[key_of(owner.id, remote.description.region)] = bounds->slot;
  const RemoteRegionId id{bounds->slot, bounds->generation};
  // Opening device memory takes milliseconds, so it begins now. The first use reports a failure.
  if (!reached_by_cpu(remote.description.kind))
    for (std::uint16_t t = 0; t < transports_.size(); ++t)
      if (reaches(*transports_[t], remote.description.kind)) (void)handle(owner, id, t);
  return id;
}

std::span<const std::vector<std::byte>> RemoteRegions::keys_of(const RegionOwner& owner, const Remote& remote,
                                                               std::uint16_t transport) const {
  for (const TransportKeys& entry : remote.description.keys)
    if (entry.worker == owner.worker && entry.transport == transports_[transport]->name()) return entry.keys;
  return {};
}

Result<std::uint64_t> RemoteRegions::handle(const RegionOwner& owner, RemoteRegionId id, std::uint16_t transport) {
  if (!has(id) || regions_[id.slot].owner != owner.id)
    return Status(ErrorCode::not_found, "the remote region was released, or belongs to another peer");
  Remote& remote = regions_[id.slot];
  std::optional<std::uint64_t>& handle = remote.handles[transport];
  if (handle) return *handle;
  auto imported = transports_[transport]->import(owner.index,
                                                 {remote.description.region, nullptr, remote.description.size_bytes,
                                                  remote.description.kind, remote.description.access},
                                                 keys_of(owner, remote, transport));
  if (!imported) return imported.status();
  handle = *imported;
  return *handle;
}

void RemoteRegions::release(RemoteRegionId id) {
  if (!has(id)) return;
  Remote& remote = regions_[id.slot];
  for (std::uint16_t t = 0; t < remote.handles.size(); ++t)
    if (remote.handles[t]) transports_[t]->release(*remote.handles[t]);
  (void)bounds_.revoke({id.slot, id.generation});
  bounds_.remove({id.slot, id.generation});
  const auto at = known_.find(key_of(remote.owner, remote.description.region));
  if (at != known_.end() && at->second == id.slot) known_.erase(at);
  remote = {};
}

void RemoteRegions::release_all(PeerId owner) {
  for (std::uint32_t slot = 0; slot < regions_.size(); ++slot)
    if (regions_[slot].generation != 0 && regions_[slot].owner == owner) release({slot, regions_[slot].generation});
}

// An import of an earlier region in the same slot is not found any more, since that region has ended.
std::optional<RemoteRegionId> RemoteRegions::find(PeerId owner, RegionId region) const {
  const auto at = known_.find(key_of(owner, region));
  if (at == known_.end()) return std::nullopt;
  const Remote& remote = regions_[at->second];
  if (remote.generation == 0 || remote.owner != owner || remote.description.region != region) return std::nullopt;
  return RemoteRegionId{at->second, remote.generation};
}

Place RemoteRegions::place_of(RemoteRegionId id, const Expectation* machine) {
  if (machine == nullptr || !has(id)) return kNoPlace;
  Remote& remote = regions_[id.slot];
  if (remote.place) return *remote.place;
  if (reached_by_cpu(remote.description.kind)) return *(remote.place = machine->place_of({}, -1));
  for (std::uint16_t t = 0; t < remote.handles.size(); ++t) {
    transport::GpuAccess* const gpus = transports_[t]->gpu();
    if (!remote.handles[t] || gpus == nullptr) continue;
    const transport::MemoryPlace place = gpus->place_of_remote(*remote.handles[t]);
    if (!place.gpu.empty()) return *(remote.place = machine->place_of(place, -1));
  }
  return kNoPlace;
}

}  // namespace fairway::engine
