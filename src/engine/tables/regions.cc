#include "engine/tables/regions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "transport/gpu_access.h"

namespace fairway::engine {
namespace {

constexpr std::uint32_t kMagic = 0x31525746;   // "FWR1"
constexpr std::uint32_t kSealed = 0x43525746;  // "FWRC"
constexpr std::size_t kMaxBytes = 64 * 1024;

}  // namespace

std::vector<std::byte> format_description(const Description& description) {
  std::size_t size = 64;
  for (const TransportKeys& keys : description.keys) {
    size += 16 + keys.transport.size();
    for (const auto& key : keys.keys) size += 2 + key.size();
  }
  std::vector<std::byte> bytes(size);
  ByteWriter writer(bytes);
  writer.put(kMagic)
      .put(description.incarnation)
      .put(description.region.slot)
      .put(description.region.generation)
      .put(description.size_bytes)
      .put(static_cast<std::uint8_t>(description.kind))
      .put(static_cast<std::uint8_t>(description.access))
      .put(static_cast<std::uint16_t>(description.keys.size()));
  for (const TransportKeys& keys : description.keys) {
    writer.put(keys.worker).put_text(keys.transport).put(static_cast<std::uint16_t>(keys.keys.size()));
    for (const auto& key : keys.keys) writer.put_sized(key);
  }
  bytes.resize(writer.size());
  return bytes;
}

std::vector<std::byte> seal_description(std::span<const std::byte> description) {
  std::vector<std::byte> bytes(2 * sizeof(std::uint32_t) + description.size());
  ByteWriter(bytes).put(kSealed).put(crc32c(0, description)).put_bytes(description);
  return bytes;
}

std::vector<std::byte> format_description(Description description, std::size_t most) {
  for (;;) {
    auto bytes = format_description(description);
    if (bytes.size() <= most || description.keys.empty()) return bytes;
    description.keys.pop_back();
  }
}

Result<Description> parse_description(std::span<const std::byte> bytes) {
  const auto malformed = [] {
    return Status(ErrorCode::invalid_argument,
                  "these bytes are not a region's description: pass what Engine::describe() gave, unchanged");
  };
  if (bytes.size() > kMaxBytes) return malformed();
  ByteReader reader(bytes);
  Description description;
  auto magic = reader.get<std::uint32_t>();
  if (magic == kSealed) {
    const auto checksum = reader.get<std::uint32_t>();
    const auto sealed = bytes.subspan(std::min(bytes.size(), 2 * sizeof(std::uint32_t)));
    if (crc32c(0, sealed) != checksum) return malformed();
    magic = reader.get<std::uint32_t>();
  }
  if (magic != kMagic) return malformed();
  description.incarnation = reader.get<std::uint64_t>();
  description.region.slot = reader.get<std::uint32_t>();
  description.region.generation = reader.get<std::uint32_t>();
  description.size_bytes = reader.get<std::uint64_t>();
  const auto kind = reader.get<std::uint8_t>();
  const auto access = reader.get<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(MemoryKind::managed) || access > static_cast<std::uint8_t>(Access::all))
    return malformed();
  description.kind = static_cast<MemoryKind>(kind);
  description.access = static_cast<Access>(access);
  const auto transports = reader.get<std::uint16_t>();
  for (std::uint16_t i = 0; i < transports && reader.ok(); ++i) {
    TransportKeys keys;
    keys.worker = reader.get<std::uint16_t>();
    keys.transport = reader.get_text();
    const auto count = reader.get<std::uint16_t>();
    for (std::uint16_t k = 0; k < count && reader.ok(); ++k) {
      const auto key = reader.get_sized();
      keys.keys.emplace_back(key.begin(), key.end());
    }
    description.keys.push_back(std::move(keys));
  }
  if (!reader.done() || !description.region) return malformed();
  return description;
}

Registration register_with(std::span<const std::unique_ptr<transport::Transport>> transports, std::uint16_t worker,
                           const Region& memory, const MemorySource& source) {
  Registration made;
  made.handles.assign(transports.size(), kNotRegistered);
  Status none;    // the error of one whose peers would notice
  Status missed;  // and of one whose peers would not
  bool taken = false;
  for (std::uint16_t i = 0; i < transports.size(); ++i) {
    transport::Transport& transport = *transports[i];
    if (!reaches(transport, memory.kind)) continue;
    auto registered = transport.register_memory(memory, source);
    if (registered) {
      taken = true;
      made.handles[i] = registered->handle;
      for (const auto& key : registered->keys)
        if (key.empty()) made.partly |= std::uint64_t{1} << i;
      if (!registered->keys.empty())
        made.keys.push_back({worker, std::string(transport.name()), std::move(registered->keys)});
      continue;
    }
    const Status why = registered.status().with_context(std::string(transport.name()));
    (needs_keys(transport) ? none : missed) = why;
    made.refused.emplace_back(i, why);
    made.without |= std::uint64_t{1} << i;
  }
  if (none.is_ok() && missed.is_ok() && !taken)
    none = {ErrorCode::unsupported,
            "no transport in use here reaches memory of that kind: a GPU's needs the transport cuda"};
  made.status = !missed ? missed : taken ? Status() : none;
  return made;
}

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
