#include "transport/verbs/transport.h"

#include <algorithm>

#include <fmt/format.h>

namespace fairway::transport::verbs {
namespace {

constexpr Time kEndMemoryWithin = kSecond;      // then its registration ends under slices that the NIC still holds
constexpr Time kEndingLook = kMillisecond / 4;  // while one waits

bool advance(std::uint64_t& at, std::uint64_t units, std::uint64_t stride) {
  std::uint64_t distance = 0;
  return !__builtin_mul_overflow(units, stride, &distance) && !__builtin_add_overflow(at, distance, &at);
}

}  // namespace

VerbsTransport::VerbsTransport(RegionTable& regions, Runtime& runtime, VerbsOptions options)
    : regions_(regions),
      runtime_(runtime),
      options_(std::move(options)),
      registrations_(regions.capacity()),
      links_("verbs", kVersion, runtime, inbox_, *this),
      janitor_(runtime, "fairway-verbs"),
      guide_(runtime, "fairway-guide") {}

Status VerbsTransport::probe() {
  auto ports = open_ports(options_, &runtime_.network);
  if (!ports) return ports.status();
  ports_ = std::move(*ports);
  for (const auto& port : ports_) devices_.push_back(port->device());
  return {};
}

Status VerbsTransport::attach(Task& task) {
  task_ = &task;
  for (const auto& port : ports_)
    if (Status status = watch(*port); !status) return status;
  return {};
}

Result<RegisteredMemory> VerbsTransport::register_memory(const MemoryDescription& memory) {
  const std::uint64_t before = registrations_.added_without();
  auto added = registrations_.add(ports_, memory, runtime_.executor);
  if (registrations_.added_without() != before && task_ != nullptr) task_->wake();
  return added;
}

// The table refuses by now, so nothing new begins here. What the NIC still works on of ours is waited for, as ending
// the registration under it would break its link; peers' NICs are stopped by the end of the registration itself.
void VerbsTransport::deregister(std::uint64_t handle) {
  endings_.push_back({handle, after(runtime_.clock.now(), kEndMemoryWithin)});
  end_memory(runtime_.clock.now());
}

bool VerbsTransport::memory_is_free(std::uint64_t handle) {
  bool free = true;
  for (const std::uint32_t slot : links_.up()) free &= ends_[slot].lane->stop_memory(handle);
  return free;
}

void VerbsTransport::end_memory(Time now) {
  std::erase_if(endings_, [&](const Ending& ending) {
    if (comeback_ && comeback_->brings(ending.handle)) return false;
    if (!memory_is_free(ending.handle) && now < ending.deadline) return false;
    std::shared_ptr<Registration> ends = registrations_.take(ending.handle);
    if (ends == nullptr || ends->memory.size_bytes < kManyPages) {
      ends.reset();
      inbox_.add(EventKind::deregistered).value = ending.handle;
      return true;
    }
    ++unpinning_;  // milliseconds: too long for a step
    janitor_.end([this, ends = std::move(ends), handle = ending.handle]() mutable {
      ends.reset();
      {
        const std::lock_guard lock(unpinned_mutex_);
        unpinned_.push_back(handle);
      }
      if (task_ != nullptr) task_->wake();
    });
    return true;
  });
  endings_at_ = endings_.empty() ? kNever : after(now, kEndingLook);
}

void VerbsTransport::tell_unpinned() {
  const std::lock_guard lock(unpinned_mutex_);
  for (const std::uint64_t handle : unpinned_) inbox_.add(EventKind::deregistered).value = handle;
  unpinning_ -= static_cast<std::uint32_t>(unpinned_.size());
  unpinned_.clear();
}

Result<std::uint64_t> VerbsTransport::import(PeerIndex peer, const RemoteMemory& memory,
                                             std::span<const std::vector<std::byte>> keys) {
  if (!links_.knows(peer)) return Status(ErrorCode::not_found, "verbs: no such peer");
  if (keys.empty() || keys.size() > kMaxPorts)
    return Status(ErrorCode::unsupported,
                  "verbs: the peer has not registered the region with its NICs (a limit of locked memory that is too "
                  "low, or memory "
                  "of a GPU that they do not reach: its own explain says which)");
  Remote remote{memory.size_bytes, memory.access, {}};
  for (const auto& bytes : keys) {
    if (bytes.empty()) {
      remote.keys.emplace_back();
      continue;
    }
    const auto key = decode_key(bytes);
    if (!key) return key.status();
    std::uint64_t end = 0;
    if (__builtin_add_overflow(key->address, memory.size_bytes, &end))
      return Status(ErrorCode::protocol_error, "verbs: a region that ends beyond all addresses");
    remote.keys.push_back(*key);
  }
  if (!renew(remote, renewed_keys_.of(peer, memory.id)))
    return Status(ErrorCode::protocol_error, "verbs: a renewed key of a region that cannot have it");
  return imports_.add(peer, memory.id, std::move(remote));
}

void VerbsTransport::release(std::uint64_t remote_handle) {
  imports_.release(remote_handle);
}

// Every lane that got something rings once, at the end: slices of several take turns in a stripe.
std::size_t VerbsTransport::post(std::span<const Slice> slices) {
  std::size_t taken = 0;
  for (; taken < slices.size(); ++taken) {
    const Slice& slice = slices[taken];
    const Link* link = links_.find(slice.link);
    if (closed_ || link == nullptr || link->state != PlannedLinks::State::up) break;
    End& end = ends_[link->id.slot];
    if (end.lane->broken()) break;
    Command command;
    const Registration* local = nullptr;
    Key remote;
    const ErrorCode refused = check(*link, slice, command, local, remote);
    if (refused == ErrorCode::ok) {
      if (!end.lane->post(command, local, remote)) break;
      if (!std::exchange(end.rings, true)) ringing_.push_back(&end);
    } else {
      Event& event = inbox_.add(EventKind::failed);
      event.token = slice.token;
      event.link = link->id;
      event.status = Status(refused, "verbs: the slice cannot be sent").with_effect(Effect::not_applied);
    }
  }
  for (End* end : ringing_) {
    end->rings = false;
    end->lane->flush();
  }
  ringing_.clear();
  return taken;
}

// What this side can refuse, of the far side too: the peer's NIC would refuse by ending the queue pair. What it knows
// better than we do is that a region has ended.
ErrorCode VerbsTransport::check(const Link& link, const Slice& slice, Command& out, const Registration*& local,
                                Key& remote) {
  const auto* import = imports_.find(slice.remote_handle, link.peer);
  const ErrorCode code =
      prepare(devices_[link.device].capabilities, regions_, slice, import == nullptr ? nullptr : &import->region, out);
  if (code != ErrorCode::ok || slice.op == Op::message) return code;
  const Remote& far = import->extra;
  if (link.peer_device >= far.keys.size() || !far.keys[link.peer_device]) return ErrorCode::not_found;
  remote = *far.keys[link.peer_device];
  if (!includes(far.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (slice.op == Op::fetch_add || slice.op == Op::compare_swap) {
    if (slice.remote_offset > far.size_bytes || far.size_bytes - slice.remote_offset < 8)
      return ErrorCode::out_of_range;
    return (remote.address + slice.remote_offset) % 8 == 0 ? ErrorCode::ok : ErrorCode::invalid_argument;
  }
  if (out.slice.count > kMaxBlocks) return ErrorCode::invalid_argument;
  if (!remote_fits(out.slice, far)) return ErrorCode::out_of_range;
  if (out.local_begin == nullptr) return ErrorCode::ok;
  BlockCursor cursor;
  for (Piece piece; !cursor.done(out.slice);)
    if (const ErrorCode block = cursor.next(out, kMaxSliceBytes, piece); block != ErrorCode::ok) return block;
  local = registrations_.find(slice.local_handle);
  if (local == nullptr) return ErrorCode::revoked;
  if (!local->is_at(link.device)) return ErrorCode::unsupported;
  return slice.op == Op::read && !local->writable ? ErrorCode::access_denied : ErrorCode::ok;
}

bool VerbsTransport::remote_fits(const Slice& slice, const Remote& remote) {
  for (std::uint32_t i = 0; i < slice.count; ++i) {
    std::uint64_t at = slice.remote_offset;
    if (slice.shape != Shape::contiguous &&
        !advance(at, slice.shape == Shape::indexed ? slice.remote_index[i] : i, slice.remote_stride))
      return false;
    if (at > remote.size_bytes || slice.length > remote.size_bytes - at) return false;
  }
  return true;
}

std::size_t VerbsTransport::poll(std::span<Event> events, Time now) {
  inbox_.begin_poll();
  if (!closed_) {
    if (switchboard_) look_at_calls(now, armed_);
    if (walking_ != 0) take_arrivals();
    look_at_ports(now);
    look_at_devices(now);
    if (comeback_ && comeback_->done.load(std::memory_order_acquire)) end_comeback();
    look_for_latecomers();
    if (losing_) let_ports_go(now);
    links_.look_at_deadlines(now);
  }
  const auto& up = links_.up();
  const std::size_t count = up.size();
  for (std::size_t i = 0; i < count; ++i) {
    Link& link = links_.at(up[(next_lane_ + i) % count]);
    Lane& lane = *lane_of(link);
    lane.receive();
    lane.flush();
    if (lane.broken() && link.state == PlannedLinks::State::up) links_.is_down(link);
  }
  if (count != 0) next_lane_ = (next_lane_ + 1) % count;
  if (!endings_.empty()) end_memory(now);
  if (unpinning_ != 0) tell_unpinned();
  return inbox_.take(events);
}

void VerbsTransport::fence(LinkId id) {
  Link* link = links_.find(id);
  if (link != nullptr && (link->state == PlannedLinks::State::up || link->state == PlannedLinks::State::down))
    fence(*link);
}

void VerbsTransport::fence(Link& link) {
  lane_of(link)->close(runtime_.clock);
  Event& event = inbox_.add(EventKind::fenced);
  event.link = link.id;
  event.value = lane_of(link)->immediates();
  drop_end(link);
  links_.is_fenced(link);
}

void VerbsTransport::reconnect(LinkId link) {
  if (!closed_) links_.reconnect(link);
}

void VerbsTransport::disconnect(PeerIndex peer) {
  links_.disconnect(peer, [this](Link& link) { fence(link); });
  imports_.release_all(peer);
  renewed_keys_.forget(peer);
}

void VerbsTransport::cancel(SliceToken token) {
  for (const std::uint32_t slot : links_.up()) ends_[slot].lane->cancel(token);
}

bool VerbsTransport::carries(LinkId id, std::uint64_t local_handle, std::uint64_t remote_handle) {
  if (id.slot >= links_.all().size()) return false;
  const Link& link = links_.at(id.slot);
  const Registration* local = registrations_.find(local_handle);
  const auto* import = imports_.find(remote_handle, link.peer);
  if (local != nullptr && !local->is_at(link.device)) return false;
  if (import == nullptr) return true;  // to be refused when it is posted
  const auto& keys = import->extra.keys;
  return link.peer_device < keys.size() && keys[link.peer_device];
}

std::string VerbsTransport::way(std::uint64_t remote_handle) const {
  std::string text = "by the NICs, from memory to memory: no CPU copies";
  const auto* import = imports_.find(remote_handle);
  for (const auto& port : ports_) {
    const auto all = links_.all();
    const auto pairs = std::count_if(all.begin(), all.end(), [&](const Link& link) {
      return import != nullptr && link.state != PlannedLinks::State::free && link.peer == import->peer &&
             link.device == port->index();
    });
    if (pairs == 0) continue;
    text += fmt::format("; {} ({}) by {} queue pair{}", port->device().name, text_of(port->address()), pairs,
                        pairs == 1 ? "" : "s");
    if (port->iwarp()) text += " of iWARP";
    if (!port->bond().empty()) text += fmt::format(", for its {} has {} legs", port->bond(), port->legs());
  }
  return text;
}

Costs VerbsTransport::costs() const {
  return {inbox_.system_calls.load(std::memory_order_relaxed), inbox_.copied_bytes.load(std::memory_order_relaxed)};
}

bool VerbsTransport::prepare_sleep() {
  armed_ = true;
  ports_at_ = calls_at_ = 0;
  for (const std::uint32_t slot : links_.up())
    if (!ends_[slot].lane->prepare_sleep()) return false;
  if (switchboard_ && switchboard_->has_refusals()) return false;
  return inbox_.empty();
}

void VerbsTransport::close() {
  if (closed_) return;
  for (const PeerIndex peer : links_.peers()) disconnect(peer);
  if (comeback_) {
    janitor_.finish();
    comeback_.reset();
  }
  end_memory(kNever);
  guide_.finish();
  janitor_.finish();
  tell_unpinned();
  closed_ = true;
  if (switchboard_) task_->unwatch(switchboard_->fd());
  switchboard_.reset();
  if (task_ == nullptr) return;
  for (const auto& port : ports_)
    if (!port->gone()) unwatch(*port);
}

Status VerbsTransport::watch(const Port& port) {
  for (const int fd : {port.channel()->fd, port.context()->async_fd})
    if (Status status = task_->watch(fd); !status) return status;
  return {};
}

void VerbsTransport::unwatch(const Port& port) {
  for (const int fd : {port.channel()->fd, port.context()->async_fd}) task_->unwatch(fd);
}

}  // namespace fairway::transport::verbs

namespace fairway::transport {

std::unique_ptr<Transport> make_verbs_transport(RegionTable& regions, Runtime& runtime, const VerbsOptions& options) {
  return std::make_unique<verbs::VerbsTransport>(regions, runtime, options);
}

}  // namespace fairway::transport
