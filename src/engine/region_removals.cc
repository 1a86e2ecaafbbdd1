#include "engine/region_removals.h"

#include <algorithm>
#include <utility>

namespace fairway::engine {
namespace {

constexpr Time kFirstPause = kMillisecond, kLongestPause = 250 * kMillisecond;

}  // namespace

void RegionRemovals::deregistered(std::uint16_t transport, std::uint64_t handle, const Status& status) {
  for (Removal& removal : all_) {
    if (!removal.posted || tables_.locals.handle(removal.id, transport) != handle) continue;
    removal.transports &= ~(std::uint64_t{1} << transport);
    if (status)
      tables_.locals.forget_handle(removal.id, transport);
    else
      removal.status = status;
  }
}

bool RegionRemovals::has_ended(TransferId user, RegionId region) const {
  // The slot of one that was collected is its next user's, who may be beginning on another thread.
  if (user && !tables_.transfers.is_active(user)) return true;
  const Transfer& t = tables_.transfers[user.slot];
  if (t.phase == Phase::done) return true;
  return !user && !touches(t.request.layout, region);  // an inner slot that another chunk now uses
}

void RegionRemovals::post(Removal& removal) {
  removal.posted = true;
  const auto& handles = tables_.locals.handles(removal.id);
  for (std::uint16_t t = 0; t < handles.size(); ++t)
    if (handles[t] != kNotRegistered) removal.transports |= std::uint64_t{1} << t;
  for (std::uint16_t t = 0; t < handles.size(); ++t)
    if (handles[t] != kNotRegistered) tables_.transports[t]->deregister(handles[t]);
}

bool RegionRemovals::proceed(Time now, const std::function<bool(RegionId)>& in_use) {
  bool posted = false;
  for (std::size_t i = 0; i < all_.size();) {
    Removal& removal = all_[i];
    std::erase_if(removal.users, [&](TransferId user) { return has_ended(user, removal.id); });
    if (removal.at > now || !removal.users.empty() || in_use(removal.id)) {
      ++i;
      continue;
    }
    if (!removal.posted) {
      removal.status = {};
      post(removal);
      posted = true;
    }
    if (removal.transports != 0) {
      ++i;
      continue;
    }
    if (!removal.status && removal.until_gone) {
      removal.posted = false;
      removal.pause = std::clamp(2 * removal.pause, kFirstPause, kLongestPause);
      removal.at = after(now, removal.pause);
      ++i;
      continue;
    }
    if (removal.status) tables_.locals.remove(removal.id);  // else the next removal asks who has refused
    const Removal ended = std::move(removal);
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
    ended.done(ended.status);  // may begin another removal
  }
  return posted;
}

Time RegionRemovals::next() const {
  Time next = kNever;
  for (const Removal& removal : all_)
    if (!removal.posted && removal.pause != 0) next = std::min(next, removal.at);
  return next;
}

void RegionRemovals::end_all(const Status& untouched) {
  for (const Removal& removal : std::exchange(all_, {})) removal.done(removal.status ? untouched : removal.status);
}

const RegionRemovals::Removal* RegionRemovals::find(RegionId id) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Removal& each) { return each.id == id; });
  return found == all_.end() ? nullptr : &*found;
}

void RegionUsers::stop_users_of(RegionId region) {
  transfers_.for_each([&](std::uint32_t slot, const Transfer& t) {
    if (touches(t.request.layout, region))
      transfers_.stop(slot, {ErrorCode::cancelled, "the local region was deregistered"});
  });
}

void RegionUsers::add_users_of(RegionId region, std::vector<TransferId>& users) const {
  transfers_.for_each([&](std::uint32_t slot, const Transfer& t) {
    if (touches(t.request.layout, region)) users.push_back(peer_.table().id(slot));
  });
}

void RegionUsers::release_import(RemoteRegionId id) {
  transfers_.for_each([&](std::uint32_t slot, const Transfer& t) {
    if (touches(t.request.layout, id)) transfers_.stop(slot, {ErrorCode::cancelled, "the remote region was released"});
  });
  peer_.remotes().revoke(id);
  released_.push_back(id);
  peer_.wake_at(peer_.now());
}

Time RegionUsers::run_timers(Time now) {
  // Imports that the user released: removed once none of our slices uses them.
  std::erase_if(released_, [&](RemoteRegionId id) {
    bool used = false;
    transfers_.for_each([&](std::uint32_t, const Transfer& t) { used = used || touches(t.request.layout, id); });
    if (!used) peer_.remotes().release(id);
    return !used;
  });
  return released_.empty() ? kNever : now + kMillisecond;
}

}  // namespace fairway::engine
