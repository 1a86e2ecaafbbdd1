#include "engine/region_users.h"

#include <algorithm>

namespace fairway::engine {

void RegionUsers::stop_users_of(RegionId region) {
  parts_.transfers.for_each([&](std::uint32_t slot, const Transfer& t) {
    if (touches(t.request.layout, region))
      parts_.transfers.stop(slot, {ErrorCode::cancelled, "the local region was deregistered"});
  });
}

void RegionUsers::add_users_of(RegionId region, std::vector<TransferId>& users) const {
  parts_.transfers.for_each([&](std::uint32_t slot, const Transfer& t) {
    if (touches(t.request.layout, region)) users.push_back(peer_.table().id(slot));
  });
}

void RegionUsers::release_import(RemoteRegionId id) {
  parts_.transfers.for_each([&](std::uint32_t slot, const Transfer& t) {
    if (touches(t.request.layout, id))
      parts_.transfers.stop(slot, {ErrorCode::cancelled, "the remote region was released"});
  });
  parts_.remotes.revoke(id);
  released_.push_back(id);
  peer_.wake_at(peer_.now());
}

void RegionUsers::revoke_at_peer(RegionId region) {
  revoking_.push_back(region);
  parts_.tell(MessageType::revoke, region);
}

void RegionUsers::on_revoke(RegionId region) {
  if (const auto imported = parts_.remotes.find(peer_.id(), region)) parts_.remotes.revoke(*imported);
  if (std::find(revoked_there_.begin(), revoked_there_.end(), region) == revoked_there_.end())
    revoked_there_.push_back(region);
  peer_.wake_at(peer_.now());
}

Time RegionUsers::run_timers(Time now) {
  // Imports that the user released: removed once none of our slices uses them.
  std::erase_if(released_, [&](RemoteRegionId id) {
    bool used = false;
    parts_.transfers.for_each([&](std::uint32_t, const Transfer& t) { used = used || touches(t.request.layout, id); });
    if (!used) parts_.remotes.release(id);
    return !used;
  });
  // Regions that the peer revokes: answered once none of our slices uses them.
  std::erase_if(revoked_there_, [&](RegionId region) {
    const auto imported = parts_.remotes.find(peer_.id(), region);
    bool used = false;
    parts_.transfers.for_each([&](std::uint32_t slot, const Transfer& t) {
      if (used || t.pieces_out == 0 || !imported || !touches(t.request.layout, *imported)) return;
      used = true;
      parts_.transfers.stop(slot, {ErrorCode::revoked, "the peer deregistered the region"});
    });
    if (used) return false;
    if (imported) parts_.remotes.release(*imported);
    parts_.tell(MessageType::revoked, region);
    return true;
  });
  return revoked_there_.empty() && released_.empty() ? kNever : now + kMillisecond;
}

void RegionUsers::peer_gone() {
  for (const RegionId region : revoking_) parts_.removals.agreed(region, peer_.id().slot);
  revoking_.clear();
}

}  // namespace fairway::engine
