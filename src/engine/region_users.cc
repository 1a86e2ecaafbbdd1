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

Time RegionUsers::run_timers(Time now) {
  // Imports that the user released: removed once none of our slices uses them.
  std::erase_if(released_, [&](RemoteRegionId id) {
    bool used = false;
    parts_.transfers.for_each([&](std::uint32_t, const Transfer& t) { used = used || touches(t.request.layout, id); });
    if (!used) parts_.remotes.release(id);
    return !used;
  });
  return released_.empty() ? kNever : now + kMillisecond;
}

}  // namespace fairway::engine
