#include <algorithm>
#include <cstring>
#include <variant>

#include "engine/worker.h"
#include "transport/gpu_access.h"

// The worker's regions: what has to end before one can be removed, and those that kernels or CPUs reach by themselves.
namespace fairway::engine {

Slice Worker::signal_word(std::uint32_t slot, std::uint64_t value) {
  const std::uint64_t offset = slot * sizeof value;
  std::memcpy(signals_.bytes.get() + offset, &value, sizeof value);
  return {signals_.region, offset, sizeof value};
}

void Worker::machine_known() {
  for (const std::uint32_t slot : live_) peers_[slot]->learn_rates();
}

void Worker::stop_users_of(RegionId id) {
  take_all_submissions();  // users of the region that were accepted before it was revoked
  for (const std::uint32_t slot : live_) peers_[slot]->region_users().stop_users_of(id);
  if (is_home())
    any_.take_if([id](const AnyReceives::One& one) { return one.into.region == id; },
                 [&](std::uint32_t slot) {
                   end_any(slot, {ErrorCode::cancelled, "the local region was deregistered"});
                 });
}

void Worker::remove_region(RegionId id, RegionOf what, std::function<void(Status)> done) {
  if (shut_) return done(untouched());  // every transport is closed
  RegionRemovals::Removal removal;
  removal.id = id;
  removal.done = std::move(done);
  removal.until_gone = what == RegionOf::window;
  // No new use can begin. A window has no users here except its receive.
  if (what == RegionOf::program)
    for (const std::uint32_t slot : live_) peers_[slot]->region_users().add_users_of(id, removal.users);
  removals_.begin(std::move(removal));
  again();  // continues at the end of the step, since the caller may be in the middle of a transfer
}

std::string Worker::holders_of(RegionId id) {
  std::string names;
  const RegionRemovals::Removal* removal = removals_.find(id);
  if (removal == nullptr) return names;
  const auto add = [&](const std::string& name) {
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
  };
  for (const TransferId user : removal->users)
    if (const Peer* owner =
            removals_.has_ended(user, id) ? nullptr : peer_of(engine_.transfers[user.slot].request.peer))
      add("a transfer with " + owner->text());
  for (std::uint16_t t = 0; t < tables_.transports.size(); ++t)
    if ((removal->transports >> t & 1) != 0) add("the transport " + std::string(tables_.transports[t]->name()));
  add_viewers_of(id, names);
  return names;
}

// ---- mapped regions ----

namespace {

using transport::DeviceInitiated;

// What a Mapping for that GPU, or for CPUs, can say.
DeviceInitiated way_for(int gpu) {
  return gpu == kCpu ? DeviceInitiated::cpu : DeviceInitiated::address;
}

Status none_for(int gpu) {
  return {ErrorCode::unsupported,
          gpu == kCpu ? "no transport in use here maps memory for CPUs: that needs the transport shm"
                      : "no transport in use here lets kernels reach GPU memory: that needs the transport cuda"};
}

}  // namespace

transport::Reach Worker::map(Peer& peer, RemoteRegionId id, int gpu, Mapping& out, Status& why) {
  using transport::Reach;
  if (is_closed()) {
    why = {ErrorCode::closed, "the engine is closed"};
    return Reach::no;
  }
  if (!tables_.remotes.has(id)) {
    why = {ErrorCode::not_found, "the remote region was released, or its owner deregistered it"};
    return Reach::no;
  }
  if (reached_by_cpu(tables_.remotes.kind_of(id)) != (gpu == kCpu)) {
    why = gpu == kCpu ? Status(ErrorCode::invalid_argument,
                               "the region is GPU memory of the peer's, which no CPU reaches: name one of this "
                               "process's GPUs")
                      : Status(ErrorCode::unsupported,
                               "the region is host memory of the peer's: kernels reach GPU memory alone");
    return Reach::no;
  }
  why = engine_.options.strict_isolation
            ? Status(ErrorCode::unsupported, "EngineOptions::strict_isolation forbids mapping a peer's memory")
            : none_for(gpu);
  const DeviceInitiated way = way_for(gpu);
  for (std::uint16_t t = 0; t < tables_.transports.size(); ++t) {
    if (!transport::has(*tables_.transports[t], way)) continue;
    if (const Reach linked = peer.links().linked_by(t, why); linked != Reach::yes) return linked;
    const auto handle = tables_.remotes.handle(peer.owner(), id, t);
    if (!handle) {
      why = handle.status();
      return Reach::no;
    }
    transport::GpuAccess::View view;
    const Reach reach = tables_.transports[t]->gpu()->view(*handle, gpu, static_cast<transport::Bits>(way), view, why);
    if (reach == Reach::yes) out = keep(view, t, gpu, peer.id(), peer.text());
    return reach;
  }
  return Reach::no;
}

transport::Reach Worker::map(RegionId id, int gpu, Mapping& out, Status& why) {
  using transport::Reach;
  if (is_closed()) {
    why = {ErrorCode::closed, "the engine is closed"};
    return Reach::no;
  }
  why = none_for(gpu);
  const DeviceInitiated way = way_for(gpu);
  for (std::uint16_t t = 0; t < tables_.transports.size(); ++t) {
    if (!transport::has(*tables_.transports[t], way)) continue;
    const std::uint64_t handle = tables_.locals.handle(id, t);
    if (handle == kNotRegistered) {
      if (const Status refused = tables_.locals.why_without(id, t); !refused) why = refused;
      return Reach::no;
    }
    transport::GpuAccess::View view;
    const Reach reach =
        tables_.transports[t]->gpu()->view_own(handle, gpu, static_cast<transport::Bits>(way), view, why);
    if (reach == Reach::yes) out = keep(view, t, gpu, {}, "this engine");
    return reach;
  }
  return Reach::no;
}

Mapping Worker::keep(const transport::GpuAccess::View& view, std::uint16_t transport, int gpu, PeerId peer,
                     std::string name) {
  Mappings::Entry entry;
  const auto& at = std::get<transport::MappedAddress>(view.by);  // the one that was accepted
  entry.mapping = {{}, at.address, view.size_bytes, gpu, view.access, view.ended, at.atomics, view.path_description};
  entry.worker = index_;
  entry.transport = transport;
  entry.view = view.number;
  entry.peer = peer;
  entry.name = std::move(name);
  Mapping made = entry.mapping;
  made.id = engine_.mappings.add(std::move(entry));
  return made;
}

void Worker::unmap(const Mappings::Entry& entry) {
  tables_.transports[entry.transport]->gpu()->give_back(entry.view);
  again();  // a removal may be waiting for it
}

void Worker::mapping_ended(std::uint16_t transport, const transport::Event& event) {
  const auto entry = engine_.mappings.find(index_, transport, event.value);
  if (!entry) return;
  engine_.peer_events.push(
      {PeerEvent::Kind::mapping_ended, entry->peer, entry->name, {}, 0, event.status, {}, entry->mapping.id});
  waiting_.notice();
}

// The peers whose kernels or mappings delay a removal.
void Worker::add_viewers_of(RegionId id, std::string& names) const {
  const auto& handles = tables_.locals.handles(id);
  for (std::uint16_t t = 0; t < handles.size(); ++t) {
    const bool kernels = transport::has(*tables_.transports[t], DeviceInitiated::address);
    if ((!kernels && !transport::has(*tables_.transports[t], DeviceInitiated::cpu)) || handles[t] == kNotRegistered)
      continue;
    for (const transport::PeerIndex index : tables_.transports[t]->gpu()->holders(handles[t])) {
      const auto peer = peer_by_index_.find(index);
      if (!names.empty()) names += ", ";
      if (index == transport::GpuAccess::kThisSide)
        names += "a mapping of this engine's own: unmap it";
      else
        names += (peer == peer_by_index_.end() ? std::string("a peer that has left, though not its process")
                                               : peers_[peer->second]->text()) +
                 (kernels ? ", whose kernels have it mapped" : ", which has it mapped");
    }
  }
}

}  // namespace fairway::engine
