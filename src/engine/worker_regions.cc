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
  transport::MemoryDescription description;
  description.id = *id;
  description.address = memory.bytes.get();
  description.size_bytes = size;
  description.access = access;
  locals_[id->slot].registration = register_with_all(description);
}

Slice Worker::signal_word(std::uint32_t slot, std::uint64_t value) {
  const std::uint64_t offset = slot * sizeof value;
  std::memcpy(signals_.bytes.get() + offset, &value, sizeof value);
  return {signals_.region, offset, sizeof value};
}

void Worker::add_region(RegionId id, Registration registration, RegionFile file, const MemoryAt& at) {
  locals_[id.slot] = {std::move(registration), file, at, {}};
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
    transport::GpuAccess* const gpus = transports_[t]->gpu();
    if (!remote.handles[t] || gpus == nullptr) continue;
    const transport::MemoryPlace place = gpus->place_of_remote(*remote.handles[t]);
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
  const auto& handles = locals_[id.slot].registration.handles;
  return transport < handles.size() ? handles[transport] : 0;
}

Status Worker::why_without(RegionId id, std::uint16_t transport) const {
  if (id.slot >= locals_.size()) return {};
  for (const auto& [refusing, why] : locals_[id.slot].registration.refused)
    if (refusing == transport) return why;
  return {};
}

std::string_view Worker::how_with(RegionId id, std::uint16_t transport) const {
  if (id.slot >= locals_.size()) return {};
  for (const auto& [with, how] : locals_[id.slot].registration.how)
    if (with == transport) return how;
  return {};
}

std::uint64_t Worker::without(RegionId id) const {
  return id.slot < locals_.size() ? locals_[id.slot].registration.without : 0;
}

std::uint64_t Worker::without(RemoteRegionId id) const {
  return id.slot < remotes_.size() && remotes_[id.slot].generation == id.generation ? remotes_[id.slot].without : 0;
}

std::uint64_t Worker::partly(RegionId id) const {
  std::uint64_t out = 0;
  if (id.slot < locals_.size())
    for (const auto& each : locals_[id.slot].registration.partly) out |= std::uint64_t{1} << each.transport;
  return out;
}

std::uint64_t Worker::partly(RemoteRegionId id) const {
  return id.slot < remotes_.size() && remotes_[id.slot].generation == id.generation ? remotes_[id.slot].partly : 0;
}

Status Worker::why_partly(RegionId id, std::uint16_t transport, transport::DeviceIndex device) const {
  if (id.slot < locals_.size())
    for (const auto& each : locals_[id.slot].registration.partly)
      if (each.transport == transport && each.device == device) return each.why;
  return {};
}

void Worker::stop_users_of(RegionId id) {
  while (take_submissions()) {
  }  // users of the region that were accepted before it was revoked
  for (const std::uint32_t slot : live_) peers_[slot]->stop_users_of(id);
}

void Worker::remove_region(RegionId id, Peer* window_of, std::function<void(Status)> done) {
  Removal removal{id, window_of != nullptr, 0, {}, {}, false, {}, std::move(done)};
  // Nobody begins to use it any more. A window has no users here, but the receive that it is a part of.
  if (window_of == nullptr)
    for (const std::uint32_t slot : live_) peers_[slot]->add_users_of(id, removal.users);
  bool ask_peers = false;
  for (const auto& transport : transports_)
    for (const transport::Device& device : transport->devices())
      ask_peers |= device.capabilities.revocation == transport::Revocation::by_owner_and_peers;
  if (ask_peers && window_of != nullptr) removal.peers_left.push_back(window_of->id().slot);
  if (ask_peers && window_of == nullptr) removal.peers_left = live_;
  removals_.push_back(std::move(removal));
  for (const std::uint32_t slot : std::vector(removals_.back().peers_left)) peers_[slot]->revoke_at_peer(id);
  again();  // continued at the end of the step: the caller may stand in the middle of a transfer
}

std::string Worker::holders_of(RegionId id) {
  std::string names;
  for (const Removal& removal : removals_) {
    if (removal.id != id) continue;
    const auto add = [&](const std::string& name) {
      if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
    };
    for (const std::uint32_t slot : removal.peers_left)
      if (peers_[slot] != nullptr) add(peers_[slot]->text());
    for (const TransferId user : removal.users)
      if (const Peer* owner = has_ended(user, id) ? nullptr : peer_of(services_.transfers[user.slot].request.peer))
        add("a transfer with " + owner->text());
    for (std::uint16_t t = 0; t < transports_.size(); ++t)
      if ((removal.transports_left >> t & 1) != 0) add("the transport " + std::string(transports_[t]->name()));
    add_viewers_of(id, names);
  }
  return names;
}

void Worker::region_quiet(Peer& peer, RegionId id) {
  for (Removal& removal : removals_)
    if (removal.id == id) std::erase(removal.peers_left, peer.id().slot);
}

bool Worker::has_ended(TransferId user, RegionId region) const {
  const Transfer& t = services_.transfers[user.slot];
  if (t.phase == Phase::done || services_.transfers.id(user.slot) != user) return true;
  return !user && !touches(t.request.layout, region);  // an inner slot that another step has by now
}

void Worker::continue_removals() {
  for (std::size_t i = 0; i < removals_.size();) {
    Removal& removal = removals_[i];
    std::erase_if(removal.users, [&](TransferId user) { return has_ended(user, removal.id); });
    if (!removal.users.empty() || serves(removal.id)) {
      ++i;
      continue;
    }
    const auto& handles = locals_[removal.id.slot].registration.handles;
    if (!removal.posted) {
      removal.posted = true;
      for (std::uint16_t t = 0; t < handles.size(); ++t)
        if (handles[t] != kNotRegistered) removal.transports_left |= std::uint64_t{1} << t;
      for (std::uint16_t t = 0; t < handles.size(); ++t)
        if (handles[t] != kNotRegistered) transports_[t]->deregister(handles[t]);
      again();
    }
    std::erase_if(removal.peers_left, [&](std::uint32_t slot) { return peers_[slot] == nullptr; });
    if (removal.transports_left != 0 || !removal.peers_left.empty()) {
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
  remote = {bounds->generation, peer.id(), description, {}, 0, {}, 0};
  remote.handles.resize(transports_.size());
  for (std::uint16_t t = 0; t < transports_.size(); ++t)
    if (needs_keys(*transports_[t])) {
      const auto keys = keys_of(peer, remote, t);
      if (keys.empty()) remote.without |= std::uint64_t{1} << t;
      if (std::any_of(keys.begin(), keys.end(), [](const auto& key) { return key.empty(); }))
        remote.partly |= std::uint64_t{1} << t;
    }
  known_[place_of(peer.id(), description.region)] = bounds->slot;
  // A device's memory takes milliseconds to be reached, so that begins now; what fails here is told by the first use.
  if (!reached_by_cpu(description.kind))
    for (std::uint16_t t = 0; t < transports_.size(); ++t)
      if (reaches(*transports_[t], description.kind)) (void)remote_handle(peer, {bounds->slot, bounds->generation}, t);
  return {bounds->slot, bounds->generation};
}

std::span<const std::vector<std::byte>> Worker::keys_of(const Peer& peer, const Remote& remote,
                                                        std::uint16_t transport) const {
  for (const TransportKeys& entry : remote.description.keys)
    if (entry.worker == peer.remote_worker() && entry.transport == transports_[transport]->name()) return entry.keys;
  return {};
}

Result<std::uint64_t> Worker::remote_handle(Peer& peer, RemoteRegionId id, std::uint16_t transport) {
  Remote& remote = remotes_[id.slot];
  if (remote.generation != id.generation || remote.peer != peer.id())
    return Status(ErrorCode::not_found, "the remote region was released, or belongs to another peer");
  std::optional<std::uint64_t>& handle = remote.handles[transport];
  if (handle) return *handle;
  auto imported = transports_[transport]->import(
      peer.index(), {remote.description.region, remote.description.size_bytes, remote.description.access},
      keys_of(peer, remote, transport));
  if (!imported) return imported.status();
  handle = *imported;
  return *handle;
}

MemoryKind Worker::kind_of(RemoteRegionId id) const {
  return id.slot < remotes_.size() ? remotes_[id.slot].description.kind : MemoryKind::host;
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
  description.keys = locals_[id.slot].registration.keys;
  return description;
}

}  // namespace fairway::engine
