#include "transport/fabric/transport.h"

#include <algorithm>
#include <utility>

namespace fairway::transport::fabric {
namespace {

constexpr std::uint16_t kVersion = 4;
constexpr Time kFirstLook = 20 * kMicrosecond, kLastLook = 2 * kMillisecond;  // at what announces nothing
constexpr Time kEndingLook = kMillisecond / 4;                                // at memory that is to end

bool advance(std::uint64_t& at, std::uint64_t units, std::uint64_t stride) {
  std::uint64_t distance = 0;
  return !__builtin_mul_overflow(units, stride, &distance) && !__builtin_add_overflow(at, distance, &at);
}

}  // namespace

FabricTransport::FabricTransport(RegionTable& regions, Runtime& runtime, FabricOptions options)
    : regions_(regions),
      runtime_(runtime),
      options_(std::move(options)),
      registrations_(regions.capacity()),
      links_("fabric", kVersion, runtime, inbox_, *this),
      janitor_(runtime, "fairway-fabric") {}

Status FabricTransport::probe() {
  auto domains = open_domains(options_);
  if (!domains) return domains.status();
  domains_ = std::move(*domains);
  for (const auto& domain : domains_) devices_.push_back(domain->device());
  return {};
}

Status FabricTransport::attach(Task& task) {
  task_ = &task;
  return {};
}

Result<RegisteredMemory> FabricTransport::register_memory(const MemoryDescription& memory) {
  return registrations_.add(domains_, memory, runtime_);
}

Result<std::uint64_t> FabricTransport::import(PeerIndex peer, const RemoteMemory& memory,
                                              std::span<const std::vector<std::byte>> keys) {
  if (!links_.knows(peer)) return Status(ErrorCode::not_found, "fabric: no such peer");
  if (keys.empty() || keys.size() > kMaxPlannedDevices)
    return Status(ErrorCode::unsupported, "fabric: the peer has not registered the region with its domains");
  Remote remote{memory.size_bytes, memory.access, false, {}, {}};
  for (const auto& bytes : keys) {
    if (bytes.empty()) {
      remote.keys.emplace_back();
      continue;
    }
    const auto key = decode_key(bytes);
    if (!key) return key.status();
    std::uint64_t end = 0;
    if (__builtin_add_overflow(key->address, memory.size_bytes, &end))
      return Status(ErrorCode::protocol_error, "fabric: a region that ends beyond all addresses");
    remote.keys.push_back(*key);
  }
  return imports_.add(peer, memory.id, std::move(remote));
}

void FabricTransport::release(std::uint64_t remote_handle) {
  imports_.release(remote_handle);
}

std::size_t FabricTransport::post(std::span<const Slice> slices) {
  std::size_t taken = 0;
  while (taken < slices.size()) {
    Link* link = links_.find(slices[taken].link);
    if (closed_ || link == nullptr || link->state != PlannedLinks::State::up) break;
    Lane& lane = *lane_of(*link);
    bool full = lane.broken();
    while (!full && taken < slices.size() && slices[taken].link == link->id) {
      Command command;
      void* descriptor = nullptr;
      Key remote;
      const ErrorCode refused = check(*link, slices[taken], command, descriptor, remote, full);
      if (full) break;
      if (refused == ErrorCode::ok) {
        full = !lane.post(command, descriptor, remote);
      } else {
        Event& event = inbox_.add(EventKind::failed);
        event.token = slices[taken].token;
        event.link = link->id;
        event.status = Status(refused, "fabric: the slice cannot be sent").with_effect(Effect::not_applied);
      }
      taken += full ? 0 : 1;
    }
    if (!lane.only_patient()) lane.flush();
    if (full) break;
  }
  posted_ = posted_ || taken != 0;
  return taken;
}

// What this side can refuse, of the far side too: what providers make of a wrong address or a key that has ended
// differs, and for some it is the end of the link.
ErrorCode FabricTransport::check(const Link& link, const Slice& slice, Command& out, void*& descriptor, Key& remote,
                                 bool& not_yet) {
  auto* import = imports_.find(slice.remote_handle, link.peer);
  const ErrorCode code =
      prepare(devices_[link.device].capabilities, regions_, slice, import == nullptr ? nullptr : &import->region, out);
  if (code != ErrorCode::ok || slice.op == Op::message) return code;
  const Remote& far = import->extra;
  if (far.revoked) return ErrorCode::revoked;
  if (link.peer_device >= far.keys.size() || !far.keys[link.peer_device]) return ErrorCode::not_found;
  if (!includes(far.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (const ErrorCode blocks = check_blocks(out, far); blocks != ErrorCode::ok) return blocks;
  remote = *far.keys[link.peer_device];
  if (out.slice.length == 0 || out.local_begin == nullptr) return ErrorCode::ok;
  if (remote.by_link) {
    const Answer answer = key_of_link(link, *import, remote);
    not_yet = answer == Answer::not_yet;
    if (answer != Answer::yes) return ErrorCode::revoked;
  }
  const Registration* local = registrations_.find(slice.local_handle);
  if (local == nullptr) return ErrorCode::revoked;
  if (!local->is_at(link.device)) return ErrorCode::unsupported;
  const Domain& domain = *domains_[link.device];
  if (!domain.has_mode(FI_MR_LOCAL)) return ErrorCode::ok;
  descriptor = local->with[link.device].descriptor();
  if (domain.has_mode(FI_MR_ENDPOINT)) {
    const auto bound = lane_of(link)->bind(slice.local_handle, local->memory, runtime_.rng);
    if (!bound) return ErrorCode::resource_exhausted;
    descriptor = (*bound)->descriptor();
  }
  return ErrorCode::ok;
}

ErrorCode FabricTransport::check_blocks(const Command& command, const Remote& far) const {
  const Slice& slice = command.slice;
  if (slice.count > kMaxBlocks) return ErrorCode::invalid_argument;
  for (std::uint32_t i = 0; i < slice.count; ++i) {
    std::uint64_t at = slice.remote_offset;
    if (slice.shape != Shape::contiguous &&
        !advance(at, slice.shape == Shape::indexed ? slice.remote_index[i] : i, slice.remote_stride))
      return ErrorCode::out_of_range;
    if (at > far.size_bytes || slice.length > far.size_bytes - at) return ErrorCode::out_of_range;
  }
  if (command.local_begin == nullptr) return ErrorCode::ok;
  BlockCursor cursor;
  for (Piece piece; !cursor.done(slice);)
    if (const ErrorCode block = cursor.next(command, kMaxSliceBytes, piece); block != ErrorCode::ok) return block;
  return ErrorCode::ok;
}

std::size_t FabricTransport::poll(std::span<Event> events, Time now) {
  inbox_.begin_poll();
  if (!closed_) links_.look_at_deadlines(now);
  const auto& up = links_.up();
  const std::size_t count = up.size();
  bool quiet = true;
  for (std::size_t i = 0; i < count; ++i) {
    Link& link = links_.at(up[(next_lane_ + i) % count]);
    Lane& lane = *lane_of(link);
    lane.receive();
    if (!lane.hold()) lane.flush();
    quiet = quiet && lane.quiet();
    if (lane.broken() && link.state == PlannedLinks::State::up) links_.is_down(link);
  }
  if (count != 0) next_lane_ = (next_lane_ + 1) % count;
  if (!leavings_.empty()) tell_left();
  if (!endings_.empty()) end_memory(now);
  if (unpinning_ != 0) tell_unpinned();
  if (std::exchange(posted_, false) || !quiet) quiet_since_ = now;
  set_timer(now);
  return inbox_.take(events);
}

void FabricTransport::set_timer(Time now) {
  timer_ = links_.next_deadline();
  if (!endings_.empty() || !leavings_.empty()) timer_ = std::min(timer_, after(now, kEndingLook));
  const auto& up = links_.up();
  for (const std::uint32_t slot : up) timer_ = std::min(timer_, lanes_[slot]->ask(now));
  // A provider that is driven by whoever polls may have something to do later by itself, which nothing announces: EFA
  // sends again after a while what found no receive.
  if (std::any_of(up.begin(), up.end(), [&](std::uint32_t slot) { return lanes_[slot]->busy(); }))
    timer_ = std::min(timer_, after(now, kLastLook));
  if (std::none_of(up.begin(), up.end(), [&](std::uint32_t slot) { return lanes_[slot]->needs_looks(); })) return;
  timer_ = std::min(timer_, after(now, std::clamp(now - quiet_since_, kFirstLook, kLastLook)));
}

bool FabricTransport::must_poll() const {
  const auto& up = links_.up();
  return std::any_of(up.begin(), up.end(), [&](std::uint32_t slot) {
    return !lanes_[slot]->broken() && lanes_[slot]->needs_looks() && lanes_[slot]->busy();
  });
}

bool FabricTransport::prepare_sleep() {
  for (const std::uint32_t slot : links_.up())
    if (!lanes_[slot]->prepare_sleep()) return false;
  return inbox_.empty();
}

void FabricTransport::fence(LinkId id) {
  Link* link = links_.find(id);
  if (link != nullptr && (link->state == PlannedLinks::State::up || link->state == PlannedLinks::State::down))
    fence(*link);
}

void FabricTransport::fence(Link& link) {
  Lane& lane = *lane_of(link);
  close_lane(lane);
  lane.give_up();
  Event& event = inbox_.add(EventKind::fenced);
  event.link = link.id;
  event.value = lane.immediates();
  if (!lane.stopped())
    event.status =
        Status(ErrorCode::not_fenced, "fabric: " + devices_[link.device].name + ": " + lane.why_not_stopped());
  if (lane.end_lives())
    static_cast<void>(lanes_[link.id.slot].release());
  else
    lanes_[link.id.slot].reset();
  links_.is_fenced(link);
}

void FabricTransport::close_lane(Lane& lane) {
  if (lane.endpoint_fd() >= 0) task_->unwatch(lane.endpoint_fd());
  lane.close(runtime_.clock);
}

void FabricTransport::reconnect(LinkId link) {
  if (!closed_) links_.reconnect(link);
}

void FabricTransport::disconnect(PeerIndex peer) {
  links_.disconnect(peer, [this](Link& link) { fence(link); });
  imports_.release_all(peer);
  std::erase_if(leavings_, [peer](const Leaving& each) { return each.peer == peer; });
  for (Ending& each : endings_) std::erase(each.asked, peer);
}

void FabricTransport::cancel(SliceToken token) {
  for (const std::uint32_t slot : links_.up()) lanes_[slot]->cancel(token);
}

bool FabricTransport::carries(LinkId id, std::uint64_t local_handle, std::uint64_t remote_handle) {
  if (id.slot >= links_.all().size()) return false;
  const Link& link = links_.at(id.slot);
  const Registration* local = registrations_.find(local_handle);
  const auto* import = imports_.find(remote_handle, link.peer);
  if (local != nullptr && !local->is_at(link.device)) return false;
  if (import == nullptr) return true;  // to be refused when it is posted
  const auto& keys = import->extra.keys;
  return link.peer_device < keys.size() && keys[link.peer_device];
}

std::string FabricTransport::way(std::uint64_t) const {
  return devices_.empty() ? std::string() : "by libfabric's provider " + devices_.front().name;
}

Costs FabricTransport::costs() const {
  return {0, inbox_.copied_bytes.load(std::memory_order_relaxed)};
}

void FabricTransport::close() {
  if (closed_) return;
  for (const PeerIndex peer : links_.peers()) disconnect(peer);
  end_memory(kNever);
  janitor_.finish();
  tell_unpinned();
  closed_ = true;
  timer_ = kNever;
}

}  // namespace fairway::transport::fabric

namespace fairway::transport {

std::unique_ptr<Transport> make_fabric_transport(RegionTable& regions, Runtime& runtime, const FabricOptions& options) {
  return std::make_unique<fabric::FabricTransport>(regions, runtime, options);
}

}  // namespace fairway::transport
