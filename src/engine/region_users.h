#pragma once

#include <functional>
#include <vector>

#include "engine/control_message.h"
#include "engine/region_removals.h"
#include "engine/remote_regions.h"
#include "engine/transfers/transfers.h"

namespace fairway::engine {

// Ends the use of regions by one peer's transfers: this side's regions, and imported ones of the peer. Owner: the
// peer's worker.
class RegionUsers {
 public:
  struct Parts {
    RemoteRegions& remotes;
    RegionRemovals& removals;
    Transfers& transfers;
    std::function<void(MessageType type, RegionId region)> tell;  // the peer, by control
  };
  RegionUsers(PeerContext& peer, Parts parts) : peer_(peer), parts_(std::move(parts)) {}

  void stop_users_of(RegionId region);  // local memory
  void add_users_of(RegionId region, std::vector<TransferId>& users) const;
  void release_import(RemoteRegionId id);  // stops its users here
  void revoke_at_peer(RegionId region);    // asks the peer to stop using our region; RegionRemovals::agreed() follows
  void on_revoke(RegionId region);         // the peer asks the same of its region
  Time run_timers(Time now);               // when to run again
  void peer_gone();

 private:
  PeerContext& peer_;
  const Parts parts_;
  std::vector<RemoteRegionId> released_;  // by the user, still used by slices
  std::vector<RegionId> revoking_;        // ours, asked to be left alone
  std::vector<RegionId> revoked_there_;   // theirs, to be answered once no slice uses them
};

}  // namespace fairway::engine
