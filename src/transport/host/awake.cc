#include <algorithm>
#include <utility>

#include "transport/host/transport.h"

// Links between devices that fall asleep when nothing moves over them: a timer reads a few bytes of a peer's memory
// over each. A read wakes both directions, since bytes follow the request the other way.
namespace fairway::transport::host {
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
  if (!mover_->keeps_awake() || peer == peers_.end() || peer->second.slot == kNoSlot) return false;
  const Link& link = links_[peer->second.slot];
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
