#pragma once

#include <vector>

#include "engine/remote_regions.h"
#include "engine/transfers/transfers.h"

namespace fairway::engine {

// Ends the use of regions by one peer's transfers: this side's regions, and imported ones of the peer. Owner: the
// peer's worker.
class RegionUsers {
 public:
  struct Parts {
    RemoteRegions& remotes;
    Transfers& transfers;
  };
  RegionUsers(PeerContext& peer, Parts parts) : peer_(peer), parts_(parts) {}

  void stop_users_of(RegionId region);  // local memory
  void add_users_of(RegionId region, std::vector<TransferId>& users) const;
  void release_import(RemoteRegionId id);  // stops its users here
  Time run_timers(Time now);               // when to run again

 private:
  PeerContext& peer_;
  const Parts parts_;
  std::vector<RemoteRegionId> released_;  // by the user, still used by slices
};

}  // namespace fairway::engine
