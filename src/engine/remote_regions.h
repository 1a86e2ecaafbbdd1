#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/description.h"
#include "engine/expectation.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::engine {

// The owner of imported regions: a peer, as transports and keys identify it.
struct RegionOwner {
  PeerId id;
  transport::PeerIndex index = 0;
  std::uint16_t worker = 0;  // of the peer's, for this session: its keys are the ones that count
};

// The regions of its peers that a worker has imported, and its transports' handles to them. Owner: the worker.
class RemoteRegions {
 public:
  using Transports = std::span<const std::unique_ptr<transport::Transport>>;
  // `bounds`: their sizes and permissions, which callers of the API read. Both outlive it.
  RemoteRegions(Transports transports, transport::RegionTable& bounds) : transports_(transports), bounds_(bounds) {}

  // Imports a region. Importing it again returns the same id. resource_exhausted, in `error`: the table is full.
  RemoteRegionId import(const RegionOwner& owner, Description description, Status& error);
  void release(RemoteRegionId id);  // of one that was released before: nothing
  void release_all(PeerId owner);
  // The transport's handle, importing the region there when it has none yet.
  Result<std::uint64_t> handle(const RegionOwner& owner, RemoteRegionId id, std::uint16_t transport);

  [[nodiscard]] bool has(RemoteRegionId id) const {
    return id.slot < regions_.size() && regions_[id.slot].generation == id.generation;
  }
  [[nodiscard]] std::optional<RemoteRegionId> find(PeerId owner, RegionId region) const;  // by its owner's id
  // Part of a region, for that use: ok, or why not.
  [[nodiscard]] ErrorCode allows(RemoteAddress at, std::uint64_t length, Access needed) const {
    transport::RegionTable::Resolved found;
    return bounds_.resolve({at.region.slot, at.region.generation}, at.offset, length, needed, found);
  }
  [[nodiscard]] Result<Region> bounds(RemoteRegionId id) const { return bounds_.find({id.slot, id.generation}); }
  // Of one that bounds() has found: where RegionSlot::is_live() of its generation says whether that still holds.
  [[nodiscard]] const transport::RegionSlot<>& slot_of(RemoteRegionId id) const {
    return bounds_.slot_of({id.slot, id.generation});
  }
  void revoke(RemoteRegionId id) { (void)bounds_.revoke({id.slot, id.generation}); }  // no new use; release() follows
  [[nodiscard]] bool in_device(RemoteRegionId id) const {  // not reached by a CPU; false also once it has ended
    transport::RegionTable::Resolved found;
    return bounds_.resolve({id.slot, id.generation}, 0, 0, Access::none, found) == ErrorCode::ok &&
           !reached_by_cpu(found.kind);
  }
  [[nodiscard]] MemoryKind kind_of(RemoteRegionId id) const {
    return id.slot < regions_.size() ? regions_[id.slot].description.kind : MemoryKind::host;
  }
  [[nodiscard]] RegionId region_of(RemoteRegionId id) const { return regions_[id.slot].description.region; }
  // A bit for each transport with which the peer has not registered it, and for each of which only some devices have
  // it.
  [[nodiscard]] std::uint64_t without(RemoteRegionId id) const { return has(id) ? regions_[id.slot].without : 0; }
  [[nodiscard]] std::uint64_t partly(RemoteRegionId id) const { return has(id) ? regions_[id.slot].partly : 0; }
  // Of memory in this machine that a transport knows; else, or while the machine is not known, kNoPlace.
  [[nodiscard]] Place place_of(RemoteRegionId id, const Expectation* machine);

 private:
  struct Remote {
    std::uint32_t generation = 0;
    PeerId owner;
    Description description;
    std::vector<std::optional<std::uint64_t>> handles;  // by transport
    std::uint64_t without = 0, partly = 0;
    std::optional<Place> place;
  };
  static std::uint64_t key_of(PeerId owner, RegionId region) { return std::uint64_t{owner.slot} << 32 | region.slot; }
  [[nodiscard]] std::span<const std::vector<std::byte>> keys_of(const RegionOwner& owner, const Remote& remote,
                                                                std::uint16_t transport) const;

  const Transports transports_;
  transport::RegionTable& bounds_;
  std::vector<Remote> regions_;                             // by slot, as far as one was imported
  std::unordered_map<std::uint64_t, std::uint32_t> known_;  // key_of() -> slot, of the latest region there
};

}  // namespace fairway::engine
