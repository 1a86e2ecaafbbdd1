#include <algorithm>

#include "transport/host/transport.h"

// Views: regions that kernels, or this process's CPUs, access directly. The holder sets a word in the segment during a
// touch and then reads the owner's region table; the owner revokes first and then reads the word. So at least one of
// the two sees the other.
namespace fairway::transport::host {
namespace {

// A view for CPUs: the word that says whether it has ended, and the peer's file, which stays mapped with it.
struct ForCpus {
  std::uint32_t ended = 0;
  std::shared_ptr<sys::MappedFile> map;
};

Mover::View view_for_cpus(std::shared_ptr<sys::MappedFile> map) {
  auto kept = std::make_shared<ForCpus>();
  kept->map = std::move(map);
  Mover::View view;
  if (kept->map) view.base = kept->map->address();
  if (kept->map) view.size = kept->map->size_bytes();
  view.ended = &kept->ended;
  view.atomics = true;
  view.keeps = std::move(kept);
  return view;
}

bool is_for_cpus(Bits accepted) {
  return (accepted & static_cast<Bits>(DeviceInitiated::cpu)) != 0;
}

}  // namespace

Bits HostTransport::device_initiated() const {
  if (!options_.links) return 0;
  if (mover_) return static_cast<Bits>(DeviceInitiated::address);
  return options_.map ? static_cast<Bits>(DeviceInitiated::cpu) : Bits{0};
}

Reach HostTransport::view(std::uint64_t remote_handle, int gpu, Bits accepted, View& out, Status& why) {
  if (!is_accepted(accepted, why)) return Reach::no;
  const auto* import = imports_.find(remote_handle);
  const auto peer = import == nullptr ? peers_.end() : peers_.find(import->peer);
  if (peer == peers_.end()) {
    why = {ErrorCode::not_found, "the region was released"};
    return Reach::no;
  }
  const Remote& remote = import->extra;
  if (peer->second.slots[0] == kNoSlot) return Reach::opening;
  const Link& link = links_[peer->second.slots[0]];
  if (link.state != LinkState::up || link.lane->broken()) return Reach::opening;
  const std::shared_ptr<Pair>& pair = link.lane->pair();
  Region region;
  const auto live = [&] {
    if (pair->regions.read(import->region, region)) return true;
    why = {ErrorCode::revoked, "its owner deregistered the region"};
    return false;
  };
  if (!live()) return Reach::no;
  if (region.access == Access::none) {
    why = {ErrorCode::access_denied, "its owner allows no access by peers: register it with Access::read or write"};
    return Reach::no;
  }
  if (remote.method == Method::pending) return Reach::opening;
  const bool for_cpus = is_for_cpus(accepted);
  if (remote.method != (for_cpus ? Method::mapped : Method::device)) {
    why = {ErrorCode::unsupported, (for_cpus ? "the region's memory cannot be mapped here: "
                                             : "the region is host memory, which kernels here cannot access: ") +
                                       remote.why};
    return Reach::no;
  }
  ActiveView active;
  if (for_cpus) active.by = view_for_cpus(remote.file->map);
  const auto ready =
      for_cpus ? Mover::Readiness::ready : mover_->view({}, remote.file->imported.get(), gpu, active.by, why);
  if (ready != Mover::Readiness::ready) return ready == Mover::Readiness::opening ? Reach::opening : Reach::no;
  std::byte* const address = remote.place(active.by.base, active.by.size, 0, region.size_bytes);
  if (address == nullptr) {
    why = {ErrorCode::out_of_range, "the owner's region lies outside of the allocation that it exported"};
    return Reach::no;
  }
  auto& holds = pair->out().holds;
  const auto free = std::find_if(holds.begin(), holds.end(), [](const auto& hold) { return hold.load() == 0; });
  if (free == holds.end()) {
    why = {ErrorCode::resource_exhausted,
           "the limit of " + std::to_string(kHolds) + " mapped regions of one peer is reached: unmap some"};
    return Reach::no;
  }
  {
    const Touch touch(*pair);
    if (!touch.allowed()) return Reach::opening;
    const auto end = static_cast<std::uint32_t>(free - holds.begin()) + 1;
    std::atomic<std::uint32_t>& known_end = pair->out().holds_end;
    if (known_end.load(std::memory_order_relaxed) < end) known_end.store(end, std::memory_order_seq_cst);
    free->store(handle_of(import->region), std::memory_order_seq_cst);
    if (!live()) {
      free->store(0, std::memory_order_seq_cst);
      return Reach::no;
    }
  }
  active.view.size_bytes = region.size_bytes;
  active.view.access = region.access;
  active.view.path_description = for_cpus ? std::string("mapped here") : describe_device_path(*import);
  active.region = import->region;
  active.peer = import->peer;
  active.pair = pair;
  active.hold = static_cast<std::uint32_t>(free - holds.begin());
  add_view(std::move(active), address, out);
  return Reach::yes;
}

Reach HostTransport::view_own(std::uint64_t local_handle, int gpu, Bits accepted, View& out, Status& why) {
  if (!is_accepted(accepted, why)) return Reach::no;
  const auto region = regions_.find(region_of(local_handle));
  if (!region) {
    why = region.status();
    return Reach::no;
  }
  ActiveView active;
  const bool for_cpus = is_for_cpus(accepted);
  if (for_cpus) active.by = view_for_cpus(nullptr);
  const auto ready = for_cpus ? Mover::Readiness::ready : mover_->view(region->id, nullptr, gpu, active.by, why);
  if (ready != Mover::Readiness::ready) return ready == Mover::Readiness::opening ? Reach::opening : Reach::no;
  active.view.size_bytes = region->size_bytes;
  active.view.access = Access::all;
  active.view.path_description = for_cpus ? "this process's memory" : "peer access within the process";
  active.region = region->id;
  add_view(std::move(active), region->address, out);
  return Reach::yes;
}

bool HostTransport::is_accepted(Bits accepted, Status& why) const {
  if ((accepted & device_initiated()) != 0) return true;
  why = {ErrorCode::unsupported, mover_ ? "kernels access this machine's GPU memory only by addresses"
                                        : "host memory is mapped for CPUs alone"};
  return false;
}

void HostTransport::add_view(ActiveView active, std::byte* address, View& out) {
  active.view.number = next_view_++;
  active.view.ended = active.by.ended;
  active.view.by = MappedAddress{address, active.by.atomics};
  out = active.view;
  views_.push_back(std::move(active));
}

void HostTransport::give_back(std::uint64_t number) {
  std::erase_if(views_, [&](const ActiveView& active) {
    if (active.view.number != number) return false;
    if (active.pair) {
      active.pair->out().holds[active.hold].store(0, std::memory_order_seq_cst);
      if (active.pair->ring()) counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
    }
    return true;
  });
}

void HostTransport::end_view(ActiveView& active, const Status& why) {
  if (active.ended) return;
  active.ended = true;
  std::atomic_ref(*active.by.ended).store(static_cast<std::uint32_t>(why.code()), std::memory_order_release);
  Event& event = inbox_.add(EventKind::invalidated);
  event.value = active.view.number;
  event.peer = active.peer;
  event.status = why;
}

void HostTransport::end_views(const Pair& pair, const Status& why) {
  for (ActiveView& active : views_)
    if (active.pair.get() == &pair) end_view(active, why);
}

void HostTransport::end_views(PeerIndex peer, RegionId region, const Status& why) {
  for (ActiveView& active : views_)
    if (active.peer == peer && active.region == region) end_view(active, why);
}

bool HostTransport::viewed_here(std::uint64_t local_handle) const {
  return std::any_of(views_.begin(), views_.end(), [&](const ActiveView& active) {
    return active.peer == kThisSide && active.region == region_of(local_handle);
  });
}

// ---- views that peers have of this side's regions ----

void HostTransport::recall(WatchedPair& mark, std::uint64_t handle) {
  if (mark.recalled) return;
  for (const std::uint32_t slot : up_) {
    Link& link = links_[slot];
    if (link.lane->pair() != mark.pair || link.state != LinkState::up) continue;
    Note note;
    note.kind = Note::Kind::recall;
    note.region = region_of(handle);
    mark.recalled = true;
    return send_note(link, note);
  }
}

std::vector<PeerIndex> HostTransport::holders(std::uint64_t local_handle) const {
  std::vector<PeerIndex> found;
  if (viewed_here(local_handle)) found.push_back(kThisSide);
  for (const Deregistration& each : deregistrations_)
    for (const WatchedPair& mark : each.marks)
      if (each.handle == local_handle && mark.pair->holds(local_handle)) found.push_back(mark.peer);
  return found;
}

// Keeps the pair while the peer may still access this side's memory.
void HostTransport::keep_while_touched(PeerIndex peer, const std::shared_ptr<Pair>& pair) {
  Pair::Mark mark(*pair);
  if (!mark.over(*pair) || pair->holds_any()) retired_.push_back({pair, mark, peer});
}

// Those that touch this side's memory no more.
void HostTransport::forget_retired() {
  std::erase_if(retired_, [](WatchedPair& retired) {
    Pair& pair = *retired.pair;
    pair.gone = pair.gone || (pair.process && pair.process.ended());
    return retired.mark.over(pair) && !pair.holds_any();
  });
}

// Until peers have given back their views of this side's memory, and what they copy there is over.
void HostTransport::await_retired(Time until) {
  const Time since = runtime_.clock.now();
  std::atomic<std::uint32_t> nothing{0};
  for (;;) {
    forget_retired();
    const Time now = runtime_.clock.now();
    if (retired_.empty() || now >= until) return;
    runtime_.executor.wait(nothing, 0, std::min(until, next_touch_check(since, now)));
  }
}

Status HostTransport::untouched() {
  forget_retired();
  if (retired_.empty()) return {};
  const bool held = std::ranges::any_of(retired_, [](const WatchedPair& each) { return each.pair->holds_any(); });
  return {ErrorCode::not_fenced, name() + (held ? ": a peer has mapped memory of this engine and not let go of it"
                                                : ": a peer has queued copies that may still be ahead, or is stopped "
                                                  "in the middle of one")};
}

}  // namespace fairway::transport::host
