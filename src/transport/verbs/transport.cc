#include "transport/verbs/transport.h"

#include <algorithm>

#include <fmt/format.h>

namespace fairway::transport::verbs {
namespace {

constexpr Time kDeregisterTimeout = kSecond;  // then the registration ends even if the NIC still has slices of it
constexpr Time kDeregisterCheck = kMillisecond / 4;

}  // namespace

VerbsTransport::VerbsTransport(RegionTable& regions, Runtime& runtime, VerbsOptions options)
    : PlannedTransportWith("verbs", kVersion, regions, runtime),
      options_(std::move(options)),
      registrations_(regions.capacity()),
      janitor_(runtime, "fairway-verbs"),
      rts_thread_(runtime, "fairway-rts") {}

Status VerbsTransport::open() {
  auto ports = open_ports(options_, &runtime_.network);
  if (!ports) return ports.status();
  ports_ = std::move(*ports);
  for (const auto& port : ports_) devices_.push_back(port->device());
  return {};
}

Status VerbsTransport::attach(Task& task) {
  (void)PlannedTransport::attach(task);
  for (const auto& port : ports_)
    if (Status status = watch(*port); !status) return status;
  return {};
}

Result<RegisteredMemory> VerbsTransport::register_memory(const Region& memory, const MemorySource&) {
  const std::uint64_t before = registrations_.added_without();
  auto added = registrations_.add(ports_, memory, runtime_.executor);
  if (registrations_.added_without() != before && task_ != nullptr) task_->wake();
  return added;
}

// The region table refuses the region by now, so no new slice begins. Waits for slices that the NIC still executes,
// since deregistering under them would break their link. Deregistering itself stops the peers' NICs.
void VerbsTransport::deregister(std::uint64_t handle) {
  deregistrations_.push_back({handle, after(runtime_.clock.now(), kDeregisterTimeout)});
  finish_deregistrations(runtime_.clock.now());
}

bool VerbsTransport::memory_is_free(std::uint64_t handle) {
  bool free = true;
  for (const std::uint32_t slot : links_.up()) free &= ends_[slot].lane->stop_memory(handle);
  return free;
}

void VerbsTransport::finish_deregistrations(Time now) {
  std::erase_if(deregistrations_, [&](const Deregistration& ending) {
    if (recovery_ && recovery_->has(ending.handle)) return false;
    if (!memory_is_free(ending.handle) && now < ending.deadline) return false;
    SlowDeregistrations::Ending made{ending.handle, {}, {}};
    if (std::shared_ptr<Registration> ends = registrations_.take(ending.handle)) {
      // Of a GPU's memory the number of bytes does not tell the time: other drivers take part.
      made.slow = ends->memory.size_bytes >= kManyPages || ends->gpu != nullptr;
      made.end = [this, ends = std::move(ends)] { return ends->end(ports_); };
    }
    slow_deregistrations_.end(std::move(made), janitor_, task_, inbox_);
    return true;
  });
  deregistrations_at_ = deregistrations_.empty() ? kNever : after(now, kDeregisterCheck);
}

Result<VerbsTransport::Remote> VerbsTransport::read_keys(PeerIndex peer, const RemoteMemory& memory,
                                                         std::span<const KeyBytes> keys) {
  if (keys.empty() || keys.size() > kMaxPorts)
    return Status(ErrorCode::unsupported,
                  "verbs: the peer has not registered the region with its NICs: its locked-memory limit is too low, or "
                  "its NICs cannot access that GPU memory (`explain` on the peer says which)");
  Remote remote;
  if (Status status = decode_keys(memory, keys, name(), &decode_key, remote); !status) return status;
  if (!renew(remote, renewed_keys_.of(peer, memory.id)))
    return Status(ErrorCode::protocol_error, "verbs: the peer sent a renewed key that cannot belong to the region");
  return remote;
}

std::size_t VerbsTransport::poll(std::span<Event> events, Time now) {
  inbox_.begin_poll();
  if (!closed_) {
    if (cm_) poll_cm(now, armed_);
    if (in_transition_ != 0) take_rts_outcomes();
    check_ports(now);
    check_devices(now);
    if (recovery_ && recovery_->done.load(std::memory_order_acquire)) end_recovery();
    register_missed_regions();
    if (losing_) release_lost_ports(now);
    links_.check_deadlines(now);
  }
  poll_each([this](const Link& link) {
    Lane& lane = *lane_of(link);
    lane.receive();
    lane.flush();
    return lane.broken();
  });
  if (!deregistrations_.empty()) finish_deregistrations(now);
  if (slow_deregistrations_.any()) slow_deregistrations_.report(inbox_);
  return inbox_.take(events);
}

void VerbsTransport::end_epoch(Link& link) {
  lane_of(link)->close(runtime_.clock);
  const std::uint64_t immediates = lane_of(link)->immediates();
  Status status = lane_of(link)->stopped();
  drop_end(link);
  fenced(link, immediates, std::move(status));
}

void VerbsTransport::forget(PeerIndex peer) {
  PlannedTransportWith::forget(peer);
  renewed_keys_.forget(peer);
}

void VerbsTransport::cancel(SliceToken token) {
  for (const std::uint32_t slot : links_.up()) ends_[slot].lane->cancel(token);
}

Reach VerbsTransport::reach(LinkId id, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) {
  const Registration* local = registrations_.find(local_handle);
  if (path != nullptr) {
    *path = describe_path(remote_handle);
    if (local != nullptr && !local->how.empty()) *path += "; this side's memory is registered at " + local->how;
  }
  if (id.epoch == 0 || id.slot >= links_.all().size()) return Reach::yes;
  const Link& link = links_.at(id.slot);
  const auto* import = imports_.find(remote_handle, link.peer);
  return reach_by_keys(link, local, import == nullptr ? nullptr : &import->extra, path);
}

std::string VerbsTransport::describe_path(std::uint64_t remote_handle) const {
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
    if (!port->bond().empty()) text += fmt::format(": one per port of the bond {} ({})", port->bond(), port->legs());
  }
  return text;
}

bool VerbsTransport::prepare_sleep() {
  armed_ = true;
  ports_at_ = cm_at_ = 0;
  for (const std::uint32_t slot : links_.up())
    if (!ends_[slot].lane->prepare_sleep()) return false;
  if (cm_ && cm_->has_refusals()) return false;
  return inbox_.empty();
}

void VerbsTransport::close() {
  if (closed_) return;
  disconnect_all();
  if (recovery_) {
    janitor_.finish();
    abandon(*recovery_);
    recovery_->give_back();
    recovery_.reset();
  }
  finish_deregistrations(kNever);
  rts_thread_.finish();
  janitor_.finish();
  slow_deregistrations_.report(inbox_);
  closed_ = true;
  if (cm_) task_->unwatch(cm_->fd());
  cm_.reset();
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

Result<std::unique_ptr<Transport>> open_verbs_transport(RegionTable& regions, Runtime& runtime,
                                                        const VerbsOptions& options) {
  return open_transport<verbs::VerbsTransport>(regions, runtime, options);
}

}  // namespace fairway::transport
