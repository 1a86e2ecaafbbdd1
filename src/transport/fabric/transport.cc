#include "transport/fabric/transport.h"

#include <algorithm>
#include <utility>

namespace fairway::transport::fabric {
namespace {

constexpr std::uint16_t kVersion = 4;
constexpr Time kFirstPoll = 20 * kMicrosecond, kLastPoll = 2 * kMillisecond;  // for lanes without a descriptor
constexpr Time kDeregisterCheck = kMillisecond / 4;

}  // namespace

FabricTransport::FabricTransport(RegionTable& regions, Runtime& runtime, FabricOptions options)
    : PlannedTransportWith("fabric", kVersion, regions, runtime),
      options_(std::move(options)),
      registrations_(regions.capacity()),
      janitor_(runtime, "fairway-fabric") {}

Status FabricTransport::open() {
  auto domains = open_domains(options_);
  if (!domains) return domains.status();
  domains_ = std::move(*domains);
  for (const auto& domain : domains_) devices_.push_back(domain->device());
  return {};
}

Result<RegisteredMemory> FabricTransport::register_memory(const Region& memory, const MemorySource&) {
  return registrations_.add(domains_, memory, runtime_);
}

Result<FabricRemote> FabricTransport::read_keys(PeerIndex, const RemoteMemory& memory, std::span<const KeyBytes> keys) {
  if (keys.empty() || keys.size() > kMaxPlannedDevices)
    return Status(ErrorCode::unsupported,
                  "fabric: the peer has not registered the region with its domains (`explain` on the peer says why)");
  FabricRemote remote;
  if (Status status = decode_keys<Key>(memory, keys, name(), &decode_key, remote); !status) return status;
  return remote;
}

std::size_t FabricTransport::post(std::span<const Slice> slices) {
  std::size_t taken = 0;
  while (taken < slices.size()) {
    Link* link = links_.find(slices[taken].link);
    if (closed_ || !is_up(link)) break;
    Lane& lane = *lane_of(*link);
    bool full = lane.broken();
    while (!full && taken < slices.size() && slices[taken].link == link->id) {
      Command command;
      Ends ends;
      const ErrorCode refused = check(*link, slices[taken], command, ends, full);
      if (full) break;
      if (refused == ErrorCode::ok) {
        full = !lane.post(command, ends.descriptor, ends.gpu, ends.remote);
      } else {
        inbox_.refuse(slices[taken], name(), refused);
      }
      taken += full ? 0 : 1;
    }
    if (!lane.may_hold()) lane.flush();
    if (full) break;
  }
  posted_ = posted_ || taken != 0;
  return taken;
}

// Checks bounds and permissions of the remote side too: with some providers a wrong address or key ends the link.
ErrorCode FabricTransport::check(const Link& link, const Slice& slice, Command& out, Ends& ends, bool& not_yet) {
  Import* import = nullptr;
  const ErrorCode code = prepare(link, slice, out, &import);
  if (code != ErrorCode::ok || slice.op == Op::message) return code;
  const FabricRemote& far = import->extra;
  if (far.revoked) return ErrorCode::revoked;
  const Key* key = far.at(link.peer_device);
  if (key == nullptr) return ErrorCode::not_found;
  if (!includes(far.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (const ErrorCode blocks = check_blocks(out, far.size_bytes, kMaxBlocks, kMaxSliceBytes); blocks != ErrorCode::ok)
    return blocks;
  ends.remote = *key;
  if (out.slice.length == 0 || out.local_begin == nullptr) return ErrorCode::ok;
  if (ends.remote.by_link) {
    const Answer answer = key_of_link(link, *import, ends.remote);
    not_yet = answer == Answer::not_yet;
    if (answer != Answer::yes) return ErrorCode::revoked;
  }
  const Registration* local = registrations_.find(slice.local_handle);
  if (local == nullptr) return ErrorCode::revoked;
  if (!local->is_at(link.device)) return ErrorCode::unsupported;
  const Domain& domain = *domains_[link.device];
  ends.gpu = local->gpu;
  if (!domain.has_mode(FI_MR_LOCAL)) return ErrorCode::ok;
  ends.descriptor = local->with[link.device].descriptor();
  if (domain.has_mode(FI_MR_ENDPOINT)) {
    const auto bound = lane_of(link)->bind(slice.local_handle, local->memory, runtime_.rng);
    if (!bound) return ErrorCode::resource_exhausted;
    ends.descriptor = (*bound)->descriptor();
  }
  return ErrorCode::ok;
}

std::size_t FabricTransport::poll(std::span<Event> events, Time now) {
  inbox_.begin_poll();
  if (!closed_) links_.check_deadlines(now);
  bool quiet = true;
  poll_each([&](const Link& link) {
    Lane& lane = *lane_of(link);
    lane.receive();
    if (!lane.hold()) lane.flush();
    quiet = quiet && lane.quiet();
    return lane.broken();
  });
  if (!revoke_requests_.empty()) answer_revokes();
  if (!deregistrations_.empty()) finish_deregistrations(now);
  if (slow_deregistrations_.any()) slow_deregistrations_.report(inbox_);
  if (std::exchange(posted_, false) || !quiet) quiet_since_ = now;
  set_timer(now);
  return inbox_.take(events);
}

void FabricTransport::set_timer(Time now) {
  timer_ = links_.next_deadline();
  if (!deregistrations_.empty() || !revoke_requests_.empty()) timer_ = std::min(timer_, after(now, kDeregisterCheck));
  const auto& up = links_.up();
  for (const std::uint32_t slot : up) timer_ = std::min(timer_, lanes_[slot]->request_ack(now));
  // A provider with manual progress may have work later that nothing announces: EFA retransmits after a while if there
  // was no receive.
  if (std::any_of(up.begin(), up.end(), [&](std::uint32_t slot) { return lanes_[slot]->busy(); }))
    timer_ = std::min(timer_, after(now, kLastPoll));
  if (std::none_of(up.begin(), up.end(), [&](std::uint32_t slot) { return lanes_[slot]->needs_polling(); })) return;
  timer_ = std::min(timer_, after(now, std::clamp(now - quiet_since_, kFirstPoll, kLastPoll)));
}

Time FabricTransport::next_timer() const {
  const auto& up = links_.up();
  const bool again = std::any_of(up.begin(), up.end(), [&](std::uint32_t slot) {
    return !lanes_[slot]->broken() && lanes_[slot]->needs_polling() && lanes_[slot]->busy();
  });
  return again ? kPollAgain : timer_;
}

bool FabricTransport::prepare_sleep() {
  for (const std::uint32_t slot : links_.up())
    if (!lanes_[slot]->prepare_sleep()) return false;
  return inbox_.empty();
}

void FabricTransport::end_epoch(Link& link) {
  Lane& lane = *lane_of(link);
  close_lane(link);
  lane.give_up();
  const std::uint64_t immediates = lane.immediates();
  Status status;
  if (!lane.stopped())
    status = {ErrorCode::not_fenced, "fabric: " + devices_[link.device].name + ": " + lane.why_not_stopped()};
  lanes_[link.id.slot].reset();
  fenced(link, immediates, std::move(status));
}

void FabricTransport::close_lane(const Link& link) {
  Lane& lane = *lane_of(link);
  if (lane.closed()) return;
  if (lane.endpoint_fd() >= 0) task_->unwatch(lane.endpoint_fd());
  lane.close(runtime_.clock);
  note_unstopped(link);
}

void FabricTransport::note_unstopped(const Link& link) {
  const Lane& lane = *lane_of(link);
  if (lane.stopped()) return;
  Unstopped& made = unstopped_.emplace_back();
  made.peer = link.peer;
  made.open = lane.endpoint_open();
  lane.add_in_flight(made.local, made.remote);
  made.why = "fabric: " + devices_[link.device].name + ": " + lane.why_not_stopped();
}

void FabricTransport::forget(PeerIndex peer) {
  PlannedTransportWith::forget(peer);
  std::erase_if(revoke_requests_, [peer](const RevokeRequest& each) { return each.peer == peer; });
  for (Deregistration& each : deregistrations_) std::erase(each.asked, peer);
}

void FabricTransport::cancel(SliceToken token) {
  for (const std::uint32_t slot : links_.up()) lanes_[slot]->cancel(token);
}

Reach FabricTransport::reach(LinkId id, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) {
  const bool any = id.epoch == 0 || id.slot >= links_.all().size();
  if (path != nullptr)
    *path = "by libfabric's provider " + devices_[any ? 0 : std::size_t{links_.at(id.slot).device}].name;
  if (any) return Reach::yes;
  const Link& link = links_.at(id.slot);
  const auto* import = imports_.find(remote_handle, link.peer);
  const FabricRemote* remote = import == nullptr ? nullptr : &import->extra;
  return reach_by_keys<Registration, Key>(link, registrations_.find(local_handle), remote, path);
}

void FabricTransport::close() {
  if (closed_) return;
  disconnect_all();
  finish_deregistrations(kNever);
  janitor_.finish();
  slow_deregistrations_.report(inbox_);
  closed_ = true;
  timer_ = kNever;
}

}  // namespace fairway::transport::fabric

namespace fairway::transport {

Result<std::unique_ptr<Transport>> open_fabric_transport(RegionTable& regions, Runtime& runtime,
                                                         const FabricOptions& options) {
  return open_transport<fabric::FabricTransport>(regions, runtime, options);
}

}  // namespace fairway::transport
