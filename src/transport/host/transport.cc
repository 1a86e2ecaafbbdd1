#include "transport/host/transport.h"

#include <algorithm>
#include <utility>

#include "transport/command.h"
#include "transport/host/shm.h"

namespace fairway::transport::host {
namespace {

constexpr std::uint64_t kBytesPerPoll = 512 * 1024;   // per lane and direction: 30 to 60 us
constexpr Time kFirstTouchCheck = 20 * kMicrosecond;  // until the next check whether a touch is over, at first
constexpr Time kLastTouchCheck = 5 * kMillisecond;    // and later
constexpr Time kTouchTimeout = 3 * kSecond;           // a touch lasts microseconds unless its process is stopped
constexpr Time kHoldCheck = kMillisecond;             // between checks whether a process with a view has ended
constexpr Time kGiveBackTimeout = kSecond;            // at close

Capabilities capabilities(const HostOptions& options, const Mover* mover) {
  Capabilities can;
  can.operations = bits(Op::write, Op::read, Op::message, Op::write_immediate);
  // The CPU cannot execute atomics on device memory; on host memory another transport does.
  if (mover == nullptr) can.operations = bits(can.operations, Op::fetch_add, Op::compare_swap);
  can.shapes = bits(Shape::contiguous, Shape::strided, Shape::indexed);
  if (mover != nullptr) can.memory_kinds = static_cast<std::uint8_t>(can.memory_kinds | mover->memory_kinds());
  can.max_slice_bytes = options.max_slice_bytes;
  can.max_slice_blocks = options.max_slice_blocks;
  can.queue_depth = Lane::kQueueDepth;
  can.ordered = true;
  can.visible_when_done = true;
  return can;
}

}  // namespace

// Waits longer the longer it has taken already.
Time HostTransport::next_touch_check(Time since, Time now) {
  return after(now, std::clamp((now - since) / 4, kFirstTouchCheck, kLastTouchCheck));
}

HostTransport::HostTransport(RegionTable& regions, Runtime& runtime, HostOptions options, std::unique_ptr<Mover> mover)
    : LinkedTransport(options.name, regions, runtime), options_(std::move(options)), mover_(std::move(mover)) {
  Device& device = devices_.emplace_back();
  device.name = options_.device;
  if (mover_) device.moved_by = MovedBy::gpu;
  device.capabilities = capabilities(options_, mover_.get());
}

Status HostTransport::open() {
  if (Status status = regions_.share(); !status)
    return Status(status.code(), "the region table cannot be shared: " + status.message());
  return {};
}

Status HostTransport::attach(Task& task) {
  task_ = &task;
  return mover_ ? mover_->attach(task) : Status();
}

// The handle is the region's id.
Result<RegisteredMemory> HostTransport::register_memory(const Region& memory, const MemorySource& source) {
  if ((devices_.front().capabilities.memory_kinds >> static_cast<unsigned>(memory.kind) & 1) == 0)
    return Status(ErrorCode::unsupported, options_.name + " cannot access that kind of memory");
  const Result<Region> region = regions_.find(memory.id);
  if (!region) return region.status();
  RegisteredMemory registered{handle_of(memory.id), {}};
  if (mover_) {
    const auto exported = mover_->export_memory(memory);
    if (!exported) return exported.status();
    if (*exported) {
      if (memory.access != Access::none && options_.links)
        registered.keys.push_back(encode(exports_.add(memory, **exported)));
      return registered;
    }
  }
  if (options_.map && memory.access != Access::none)
    if (const auto key = exports_.add(memory, source)) registered.keys.push_back(encode(*key));
  return registered;
}

// The region table refuses the region by now. Waits for touches in progress, queued copies and views.
void HostTransport::deregister(std::uint64_t handle) {
  Deregistration next;
  next.handle = handle;
  next.since = runtime_.clock.now();
  Note note;
  note.kind = Note::Kind::forget;
  note.file = exports_.remove(region_of(handle));
  if (mover_) mover_->end_export(region_of(handle));
  for (const std::uint32_t slot : up_) {
    Link& link = links_[slot];
    link.lane->stop_memory(handle);
    if (note.file != 0) tell_forgotten(link, note);
    next.marks.push_back({link.lane->pair(), Pair::Mark(*link.lane->pair()), link.peer});
  }
  for (const WatchedPair& retired : retired_)
    next.marks.push_back({retired.pair, Pair::Mark(*retired.pair), retired.peer});
  if (!views_.empty())
    end_views(kThisSide, region_of(handle), {ErrorCode::revoked, "this engine deregisters the region"});
  deregistrations_.push_back(std::move(next));
  finish_deregistrations();
}

void HostTransport::finish_deregistrations() {
  const Time now = runtime_.clock.now();
  Time look = after(now, kHoldCheck);
  std::erase_if(deregistrations_, [&](Deregistration& each) {
    const bool late = !each.stuck_reported && now >= after(each.since, kTouchTimeout);
    each.stuck_reported |= late;
    std::erase_if(each.marks, [&](WatchedPair& mark) {
      if (!mark.mark.over(*mark.pair)) {
        look = std::min(look, next_touch_check(each.since, now));
        if (late) report_stuck(*mark.pair, mark.mark);
        return false;
      }
      if (!mark.pair->holds(each.handle)) return true;
      recall(mark, each.handle);
      return false;
    });
    const bool copied =
        std::any_of(up_.begin(), up_.end(), [&](std::uint32_t slot) { return links_[slot].lane->queued(each.handle); });
    if (mover_ && !copied && !std::exchange(each.let_go, true)) mover_->let_go(region_of(each.handle));
    const bool kept = mover_ && !mover_->export_ended(region_of(each.handle));
    if (copied || kept) look = std::min(look, next_touch_check(each.since, now));
    if (copied || kept || !each.marks.empty() || viewed_here(each.handle)) return false;
    inbox_.add(EventKind::deregistered).value = each.handle;
    return true;
  });
  if (!deregistrations_.empty()) timer_ = std::min(timer_, look);
}

std::size_t HostTransport::post(std::span<const Slice> slices) {
  return post_each(
      slices, [this](const Link& link, const Slice& slice, Command& out) { return prepare(link, slice, out); },
      [](Lane& lane) { lane.ring(); });
}

std::size_t HostTransport::poll(std::span<Event> events, Time now) {
  inbox_.begin_poll();
  if (slept_) {
    slept_ = false;
    for (const std::uint32_t slot : up_) links_[slot].lane->end_sleep();
    connections_at_ = now;
  }
  if (!closed_ && now >= connections_at_) poll_connections(now);
  if (now >= wake_links_at_) wake_links(now);
  poll_each([&](Link& link) {
    if (link.state == LinkState::fencing || link.state == LinkState::leaving) return;
    if (link.state == LinkState::welcomed) {
      if (!link.lane->joined()) return;
      link_is_up(link);
    }
    if (link.lane->idle()) return;
    link.lane->receive(kBytesPerPoll);
    link.lane->work(kBytesPerPoll, kBytesPerPoll);
    link.lane->ring();
    if (link.lane->nudged()) connections_at_ = now;
    if (link.lane->broken() && link.state == LinkState::up) {
      link.state = LinkState::down;
      const Pair& pair = *link.lane->pair();
      const bool dead = pair.gone || (pair.left && pair.peer_end().closed.load(std::memory_order_seq_cst) == 0);
      end_views(pair, dead ? Status(ErrorCode::peer_dead, "the peer's process has ended")
                           : Status(ErrorCode::link_failed, "the mapping's link broke: map the region again"));
    }
  });
  for (std::size_t i = up_.size(); i > 0; --i) {
    Link& link = links_[up_[i - 1]];
    if (link.state == LinkState::fencing) finish_fence(link);
    if (link.state == LinkState::leaving) finish_leaving(link);
  }
  if (!deregistrations_.empty()) finish_deregistrations();
  return inbox_.take(events);
}

void HostTransport::fence(LinkId id) {
  Link* link = find(id);
  if (link == nullptr || (link->state != LinkState::up && link->state != LinkState::down)) return;
  link->lane->fence();
  // Nobody reads it any more: at its end, or with a note in it, it would wake the worker without a pause.
  if (task_ != nullptr) task_->unwatch(link->lane->pair()->socket.fd());
  end_views(*link->lane->pair(), {ErrorCode::link_failed, "the mapping's link was closed: map the region again"});
  link->state = LinkState::fencing;
  link->fencing_since = runtime_.clock.now();
  finish_fence(*link);
}

void HostTransport::finish_fence(Link& link) {
  if (!link.lane->fenced()) {
    const Time now = runtime_.clock.now();
    timer_ = std::min(timer_, next_touch_check(link.fencing_since, now));
    if (now >= after(link.fencing_since, kTouchTimeout)) report_stuck(*link.lane->pair(), link.lane->last_touch());
    return;
  }
  inbox_.fenced(link.id, link.lane->immediates());
  unwatch(*link.lane->pair());
  keep_while_touched(link.peer, link.lane->pair());
  link.lane.reset();
  link.out = {};
  link.state = LinkState::fenced;
  std::erase(up_, link.id.slot);
}

// The peer's touch does not end, so its effect on this side's memory is unknown: the link fails with protocol_error.
// Copies that it queued on a device are not counted, since they may wait for a user's stream.
void HostTransport::report_stuck(const Pair& pair, const Pair::Mark& mark) {
  if (mover_ && !mark.in_touch()) return;
  const Status why(ErrorCode::protocol_error, name() + ": the peer has been in the middle of one copy for 3 s");
  for (const std::uint32_t slot : up_) {
    Link& link = links_[slot];
    if (link.state == LinkState::leaving || link.lane->pair().get() != &pair) continue;
    if (std::exchange(link.stuck_reported, true)) continue;
    if (!link.lane->broken()) return link.lane->fail(why);
    inbox_.add(EventKind::link_down, link.id, why).peer = link.peer;
  }
}

void HostTransport::cancel(SliceToken token) {
  for (const std::uint32_t slot : up_) links_[slot].lane->cancel(token);
}

std::string HostTransport::describe_path(const Imports::Entry& import) {
  const Remote& remote = import.extra;
  switch (remote.method) {
    case Method::pending: return "waits for the peer's memory file";
    case Method::mapped: return "mapped here: copied once, by the initiator";
    case Method::cma:
      return "cross-memory attach: the kernel copies once; not mapped: " + remote.why +
             (mover_ ? "; to and from a GPU's memory through pinned memory, 1 MiB at a time" : "");
    case Method::device: return describe_device_path(import);
    case Method::bounced: break;
  }
  return "through shared memory: copied by both sides; nothing better: " + remote.why;
}

MemoryPlace HostTransport::place_of_remote(std::uint64_t remote_handle) const {
  const auto* import = imports_.find(remote_handle);
  if (import == nullptr || import->extra.method != Method::device) return {};
  return mover_->place_of(*import->extra.file->imported);
}

bool HostTransport::prepare_sleep() {
  if (!inbox_.empty()) return false;
  for (const std::uint32_t slot : up_) links_[slot].lane->begin_sleep();
  slept_ = true;
  return std::none_of(up_.begin(), up_.end(), [this](std::uint32_t slot) { return links_[slot].lane->busy(); });
}

void HostTransport::close() {
  if (closed_) return;
  for (ActiveView& active : views_) end_view(active, {ErrorCode::closed, "the engine is closing"});
  while (!views_.empty()) give_back(views_.back().view.number);
  disconnect_all();
  await_copies();
  // A peer may be stopped, or have queued copies that wait for its program: then untouched() says so.
  await_retired(after(runtime_.clock.now(), kGiveBackTimeout));
  if (mover_) mover_->close();
  finish_deregistrations();
  closed_ = true;
  join_socket_.close();
  timer_ = wake_links_at_ = kNever;
}

Result<std::unique_ptr<Transport>> open(RegionTable& regions, Runtime& runtime, HostOptions options,
                                        std::unique_ptr<Mover> mover) {
  return open_transport<HostTransport>(regions, runtime, std::move(options), std::move(mover));
}

// Links between devices that fall asleep when nothing moves over them: a timer reads a few bytes of a peer's memory
// over each. A read wakes both directions, since bytes follow the request the other way.

namespace {

constexpr Time kBetweenReads = 25 * kMillisecond;  // half of the time after which NVLinks fall asleep

}  // namespace

// Whatever else moves: a small transfer keeps only a part of a link awake.
void HostTransport::wake_links(Time now) {
  wake_links_at_ = up_.empty() || closed_ ? kNever : after(now, kBetweenReads);
  std::vector<std::pair<std::uint32_t, std::uint64_t>> woken;  // device, end
  for (const std::uint32_t slot : up_) {
    Link& link = links_[slot];
    if (link.state != LinkState::up || link.lane->reads_to_wake()) continue;
    imports_.each(link.peer, [&](const Imports::Entry& import) {
      if (import.extra.method != Method::device) return;
      for (std::uint32_t device = 0; device < mover_->device_count(); ++device) {
        const auto waking = mover_->waking(*import.extra.file->imported, device);
        if (!waking || std::ranges::count(woken, std::pair(device, waking->end)) != 0) continue;
        if (link.lane->read_to_wake(import.region, import.extra, *waking)) woken.emplace_back(device, waking->end);
      }
    });
    link.lane->ring();
  }
}

// Whether wake_links() finds memory of that peer's to read over each link between devices and this memory.
bool HostTransport::is_touched(const Imports::Entry& import) {
  const auto peer = peers_.find(import.peer);
  if (!mover_->keeps_awake() || peer == peers_.end() || peer->second.slots[0] == kNoSlot) return false;
  const Link& link = links_[peer->second.slots[0]];
  if (link.state != LinkState::up) return false;
  bool any = false, all = true;
  for (std::uint32_t device = 0; device < mover_->device_count(); ++device) {
    const auto waking = mover_->waking(*import.extra.file->imported, device);
    if (!waking) continue;
    bool found = false;
    imports_.each(import.peer, [&](const Imports::Entry& each) {
      Region region;
      if (found || each.extra.method != Method::device || !link.lane->pair()->regions.read(each.region, region)) return;
      if (!includes(region.access, Access::read) || region.size_bytes == 0) return;
      const auto other = mover_->waking(*each.extra.file->imported, device);
      found = other && other->end == waking->end;
    });
    any = true;
    all = all && found;
  }
  return any && all;
}

std::string HostTransport::describe_device_path(const Imports::Entry& import) {
  return mover_->path_description(*import.extra.file->imported, is_touched(import));
}

}  // namespace fairway::transport::host

namespace fairway::transport {

Result<std::unique_ptr<Transport>> open_shm_transport(RegionTable& regions, Runtime& runtime,
                                                      const ShmOptions& options) {
  host::HostOptions with;
  with.name = "shm";
  with.device = "memory";
  with.map = options.map;
  with.cma = options.cma;
  return host::open(regions, runtime, std::move(with));
}

}  // namespace fairway::transport
