#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fairway/explain.h"

#include "engine/expectation.h"
#include "engine/links/link_set.h"
#include "engine/tables/peer_context.h"

namespace fairway::engine {

// The two memories of a transfer, and the direction of its bytes.
struct TransferEnds {
  Place here = kNoPlace, there = kNoPlace;
  bool outwards = true;
  bool pieces = false;  // many small ones
};

// The least rate that the machine model expects of a GPU's copies between two places. Owner: the worker.
class GpuRates {
 public:
  explicit GpuRates(MachineDiscovery& machine) : machine_(machine) {}
  double least_between(Place from, Place to);  // bytes per second; 0: no figure

 private:
  MachineDiscovery& machine_;
  std::vector<std::pair<std::pair<Place, Place>, double>> known_;  // of pairs asked for so far
};

// The rates that the machine model expects of the links to a peer, and whether the links keep them. Owner: the peer's
// worker.
class LinkRates {
 public:
  LinkRates(PeerContext& peer, LinkOwner& owner, LinkSet& links, MachineDiscovery& machine, GpuRates& gpus)
      : peer_(peer), owner_(owner), links_(links), machine_(machine), gpus_(gpus) {}

  void learn();  // the machine's model is known
  void learn(Link& link);
  [[nodiscard]] bool asks_for_the_machine() const;  // a link is there whose rate its model may tell
  [[nodiscard]] TransferEnds ends_of(const Request& request) const;
  [[nodiscard]] Place place_of(RegionId id) const { return peer_.locals().place_of(id, machine_.found()); }
  [[nodiscard]] Place place_of(RemoteRegionId id) const { return peer_.remotes().place_of(id, machine_.found()); }
  void expect(const Link& link, const TransferEnds& ends, ExplainedLink& out) const;

  // ---- transfers ----
  void find_places(Transfer& t) const;
  [[nodiscard]] double least_of(const Link& link, const Transfer& t) const;  // bytes per second; 0: no figure
  void keep_pace(Link& link, std::uint64_t bytes);                           // a slice of a paced transfer has ended

 private:
  [[nodiscard]] const transport::Device& device_of(const Link& link) const {
    return peer_.transports()[link.transport]->devices()[link.device];
  }

  PeerContext& peer_;
  LinkOwner& owner_;
  LinkSet& links_;
  MachineDiscovery& machine_;
  GpuRates& gpus_;
};

}  // namespace fairway::engine
