#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/worker.h"

// The worker's part of regions: transports' handles to local and imported memory, and the end of a region.
namespace fairway::engine {

Worker::OwnMemory& Worker::scratch_of(std::uint32_t place) {
  OwnMemory& scratch = scratch_[place / kPeersPerScratch];
  if (scratch.bytes == nullptr)
    register_own(scratch, kPeersPerScratch * kMaxLinks * 3 * kProofBytes, Access::read | Access::write);
  return scratch;
}

std::uint32_t Worker::take_scratch() {
  if (free_scratch_.empty()) return scratch_places_++;
  const std::uint32_t place = free_scratch_.back();
  free_scratch_.pop_back();
  return place;
}

void Worker::register_own(OwnMemory& memory, std::size_t size, Access access) {
  memory.bytes.reset(static_cast<std::byte*>(std::calloc(size, 1)));
  memory.missing = {ErrorCode::resource_exhausted, "no memory is left for the engine's own words"};
  if (memory.bytes == nullptr) return;
  const auto id = services_.regions.add(memory.bytes.get(), size, MemoryKind::host, access);
  memory.missing = id.status();
  if (!id) return;
  memory.region = *id;
  std::vector<std::uint64_t> handles;
  for (const auto& transport : transports_) {
    transport::MemoryDescription description;
    description.id = *id;
    description.address = memory.bytes.get();
    description.size_bytes = size;
    description.access = access;
    auto registered = transport->register_memory(description);
    handles.push_back(registered ? registered->handle : kNotRegistered);
    memory.refused.push_back(registered.status());
    if (registered && !registered->keys.empty())
      memory.keys.push_back({index_, std::string(transport->name()), std::move(registered->keys)});
  }
  locals_[id->slot].handles = std::move(handles);
}

Slice Worker::signal_word(std::uint32_t slot, std::uint64_t value) {
  const std::uint64_t offset = slot * sizeof value;
  std::memcpy(signals_.bytes.get() + offset, &value, sizeof value);
  return {signals_.region, offset, sizeof value};
}

void Worker::add_region(RegionId id, std::vector<std::uint64_t> handles, RegionFile file, const MemoryAt& at) {
  locals_[id.slot] = {std::move(handles), file, at, {}};
}

Place Worker::place_of(RegionId id) {
  const Expectation* machine = services_.machine.found();
  if (machine == nullptr || id.slot >= locals_.size()) return kNoPlace;
  Local& local = locals_[id.slot];
  if (!local.place) local.place = machine->place_of(local.at.place, local.at.numa_node);
  return *local.place;
}

Place Worker::place_of(RemoteRegionId id) {
  const Expectation* machine = services_.machine.found();
  if (machine == nullptr || id.slot >= remotes_.size() || remotes_[id.slot].generation != id.generation)
    return kNoPlace;
  Remote& remote = remotes_[id.slot];
  if (remote.place) return *remote.place;
  if (reached_by_cpu(remote.description.kind)) return *(remote.place = machine->place_of({}, -1));
  for (std::uint16_t t = 0; t < remote.handles.size(); ++t) {
    if (!remote.handles[t]) continue;
    const transport::MemoryPlace place = transports_[t]->place_of(*remote.handles[t]);
    if (!place.gpu.empty()) return *(remote.place = machine->place_of(place, -1));
  }
  return kNoPlace;
}

double Worker::least_between(Place from, Place to) {
  const std::pair pair(from, to);
  for (const auto& [known, least] : leasts_)
    if (known == pair) return least;
  const Expectation* machine = services_.machine.found();
  const auto prediction =
      machine == nullptr ? std::nullopt : machine->between(from, to, true);  // the slower of the two
  return leasts_.emplace_back(pair, prediction ? prediction->gbs.low * 1e9 : 0).second;
}

void Worker::machine_known() {
  for (const std::uint32_t slot : live_) peers_[slot]->learn_rates();
}

std::uint64_t Worker::local_handle(RegionId id, std::uint16_t transport) {
  if (id.slot >= locals_.size()) return 0;
  const auto& handles = locals_[id.slot].handles;
  return transport < handles.size() ? handles[transport] : 0;
}

void Worker::stop_users_of(RegionId id) {
  while (take_submissions()) {
  }  // users of the region that were accepted before it was revoked
  for (const std::uint32_t slot : live_) peers_[slot]->stop_users_of(id);
}

void Worker::remove_region(RegionId id, Peer* window_of, std::function<void(Status)> done) {
  Removal removal{id, window_of != nullptr, 0, {}, false, {}, std::move(done)};
  bool ask_peers = false;
  for (const auto& transport : transports_)
    for (const transport::Device& device : transport->devices())
      ask_peers |= device.capabilities.revocation == transport::Revocation::by_owner_and_peers;
  if (ask_peers)
    for (const std::uint32_t slot : live_)
      if (window_of == nullptr || window_of == peers_[slot].get()) removal.peers_left.push_back(slot);
  removals_.push_back(std::move(removal));
  for (const std::uint32_t slot : std::vector(removals_.back().peers_left)) peers_[slot]->revoke_at_peer(id);
  again();  // continued at the end of the step: the caller may stand in the middle of a transfer
}

std::string Worker::holders_of(RegionId id) const {
  std::string names;
  for (const Removal& removal : removals_) {
    if (removal.id != id) continue;
    for (const std::uint32_t slot : removal.peers_left)
      if (peers_[slot] != nullptr) names += (names.empty() ? "" : ", ") + peers_[slot]->text();
  }
  return names;
}

void Worker::region_quiet(Peer& peer, RegionId id) {
  for (Removal& removal : removals_)
    if (removal.id == id) std::erase(removal.peers_left, peer.id().slot);
}

void Worker::continue_removals() {
  for (std::size_t i = 0; i < removals_.size();) {
    Removal& removal = removals_[i];
    bool used = false;
    for (const std::uint32_t slot : live_) used |= !removal.window && peers_[slot]->uses(removal.id);
    if (used) {
      ++i;
      continue;
    }
    auto& handles = locals_[removal.id.slot].handles;
    if (!removal.posted) {
      removal.posted = true;
      removal.transports_left = static_cast<std::uint32_t>(
          handles.size() - static_cast<std::size_t>(std::count(handles.begin(), handles.end(), kNotRegistered)));
      for (std::uint16_t t = 0; t < handles.size(); ++t)
        if (handles[t] != kNotRegistered) transports_[t]->deregister(handles[t]);
      again();
    }
    std::erase_if(removal.peers_left, [&](std::uint32_t slot) { return peers_[slot] == nullptr; });
    if (removal.transports_left > 0 || !removal.peers_left.empty()) {
      ++i;
      continue;
    }
    locals_[removal.id.slot] = {};
    const auto done = std::move(removal.done);
    const Status status = removal.status;
    removals_.erase(removals_.begin() + static_cast<std::ptrdiff_t>(i));
    done(status);
  }
}

RemoteRegionId Worker::import(Peer& peer, const Description& description, Status& error) {
  std::uint32_t slot = 0;
  if (const Remote* remote = known(peer.id(), description.region, slot)) return {slot, remote->generation};
  auto bounds = services_.remotes.add(nullptr, description.size_bytes, description.kind, description.access);
  if (!bounds) {
    error = {ErrorCode::resource_exhausted,
             "all remote region slots are in use: raise EngineOptions::max_remote_regions or release some"};
    return {};
  }
  Remote& remote = remotes_[bounds->slot];
  remote = {bounds->generation, peer.id(), description, {}, {}};
  remote.handles.resize(transports_.size());
  known_[place_of(peer.id(), description.region)] = bounds->slot;
  // A device's memory takes milliseconds to be reached, so that begins now; what fails here is told by the first use.
  if (!reached_by_cpu(description.kind))
    for (std::uint16_t t = 0; t < transports_.size(); ++t)
      if (reaches(*transports_[t], description.kind)) (void)remote_handle(peer, {bounds->slot, bounds->generation}, t);
  return {bounds->slot, bounds->generation};
}

Result<std::uint64_t> Worker::remote_handle(Peer& peer, RemoteRegionId id, std::uint16_t transport) {
  Remote& remote = remotes_[id.slot];
  if (remote.generation != id.generation || remote.peer != peer.id())
    return Status(ErrorCode::not_found, "the remote region was released, or belongs to another peer");
  std::optional<std::uint64_t>& handle = remote.handles[transport];
  if (handle) return *handle;
  static const std::vector<std::vector<std::byte>> kNoKeys;
  const std::vector<std::vector<std::byte>>* keys = &kNoKeys;
  for (const TransportKeys& entry : remote.description.keys)
    if (entry.worker == peer.remote_worker() && entry.transport == transports_[transport]->name()) keys = &entry.keys;
  auto imported = transports_[transport]->import(
      peer.index(), {remote.description.region, remote.description.size_bytes, remote.description.access}, *keys);
  if (!imported) return imported.status();
  handle = *imported;
  return *handle;
}

RegionId Worker::remote_region(RemoteRegionId id) const {
  return remotes_[id.slot].description.region;
}

void Worker::release(RemoteRegionId id) {
  if (id.slot >= remotes_.size() || remotes_[id.slot].generation != id.generation) return;
  Remote& remote = remotes_[id.slot];
  for (std::uint16_t t = 0; t < remote.handles.size(); ++t)
    if (remote.handles[t]) transports_[t]->release(*remote.handles[t]);
  (void)services_.remotes.revoke({id.slot, id.generation});
  services_.remotes.remove({id.slot, id.generation});
  const auto at = known_.find(place_of(remote.peer, remote.description.region));
  if (at != known_.end() && at->second == id.slot) known_.erase(at);
  remote = {};
}

// Null: not imported. An import of an earlier region in the same place is found no more: that region has ended.
const Worker::Remote* Worker::known(PeerId peer, RegionId region, std::uint32_t& slot) const {
  const auto at = known_.find(place_of(peer, region));
  if (at == known_.end()) return nullptr;
  slot = at->second;
  const Remote& remote = remotes_[slot];
  return remote.generation != 0 && remote.peer == peer && remote.description.region == region ? &remote : nullptr;
}

std::vector<RemoteRegionId> Worker::imports_of(const Peer& peer, RegionId region) const {
  std::vector<RemoteRegionId> found;
  std::uint32_t slot = 0;
  if (const Remote* remote = known(peer.id(), region, slot)) found.push_back({slot, remote->generation});
  return found;
}

Description Worker::describe(RegionId id) const {
  Description description;
  const auto region = services_.regions.find(id);
  if (!region) return description;
  description.region = id;
  description.size_bytes = region->size_bytes;
  description.kind = region->kind;
  description.access = region->access;
  for (const OwnMemory& scratch : scratch_)
    if (id == scratch.region) description.keys = scratch.keys;
  return description;
}

}  // namespace fairway::engine
