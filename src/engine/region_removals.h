#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/tables/peer_context.h"
#include "engine/tables/transfer.h"
#include "engine/transfers/transfers.h"

namespace fairway::engine {

// Regions of this engine that are being removed from a worker. First the transfers that use the region end. Then every
// transport stops its peers and deregisters the memory. Owner: the worker.
class RegionRemovals {
 public:
  // not ok: a transport still holds the memory, and another removal asks it again; of one `until_gone`, at the engine's
  // end alone.
  using Done = std::function<void(Status)>;
  struct Removal {
    RegionId id;
    std::vector<TransferId> users;  // this engine's transfers; of its own inner ones the slot alone
    Done done;                      // runs once nothing of this worker touches the region
    bool until_gone = false;        // who refuses is asked again: nobody else will
    std::uint64_t transports = 0;   // a bit for each that is at it
    bool posted = false;            // to the transports
    Status status;
    Time pause = 0, at = 0;  // after the last refusal, and when who refused is asked again
  };
  explicit RegionRemovals(WorkerTables& tables) : tables_(tables) {}

  void begin(Removal removal) { all_.push_back(std::move(removal)); }
  void deregistered(std::uint16_t transport, std::uint64_t handle, const Status& status);
  // Continues each removal as far as it can. `in_use`: whether a device copies there for a peer. True: transports were
  // asked to deregister.
  bool proceed(Time now, const std::function<bool(RegionId)>& in_use);
  [[nodiscard]] Time next() const;        // when who refused is asked again
  void end_all(const Status& untouched);  // the engine closes: every transport is closed
  [[nodiscard]] bool empty() const { return all_.empty(); }
  [[nodiscard]] const Removal* find(RegionId id) const;  // null: none is under way
  [[nodiscard]] bool has_ended(TransferId user, RegionId region) const;

 private:
  void post(Removal& removal);

  WorkerTables& tables_;
  std::vector<Removal> all_;
};

// Ends the use of regions by one peer's transfers: this side's regions, and imported ones of the peer. Owner: the
// peer's worker.
class RegionUsers {
 public:
  RegionUsers(PeerContext& peer, Transfers& transfers) : peer_(peer), transfers_(transfers) {}

  void stop_users_of(RegionId region);  // local memory
  void add_users_of(RegionId region, std::vector<TransferId>& users) const;
  void release_import(RemoteRegionId id);  // stops its users here
  Time run_timers(Time now);               // when to run again

 private:
  PeerContext& peer_;
  Transfers& transfers_;
  std::vector<RemoteRegionId> released_;  // by the user, still used by slices
};

}  // namespace fairway::engine
