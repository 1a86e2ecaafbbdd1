#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "engine/expectation.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::engine {

// One transport's keys to a region, for the links of one worker of the region's engine.
struct TransportKeys {
  std::uint16_t worker = 0;
  std::string transport;
  std::vector<std::vector<std::byte>> keys;  // one per device
};

// What Engine::describe() writes and import_region() reads: a region as its peers know it. docs/wire-format.md has the
// layout.
struct Description {
  std::uint64_t incarnation = 0;  // of the engine that owns the region
  RegionId region;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
  std::vector<TransportKeys> keys;  // a transport that needs none is absent
};

std::vector<std::byte> format_description(const Description& description);
// The same in at most so many bytes, at least 64. If all keys do not fit, those of the last (slowest) transports are
// left out; to peers the region then looks as if those transports had not registered it.
std::vector<std::byte> format_description(Description description, std::size_t most);
// What Engine::describe() gives away: with a checksum, since nobody knows how these bytes travel.
std::vector<std::byte> seal_description(std::span<const std::byte> description);
// Sealed or not. invalid_argument for bytes that are not a description, whatever they are.
Result<Description> parse_description(std::span<const std::byte> bytes);

// In place of a transport's handle to a region that it does not have.
inline constexpr std::uint64_t kNotRegistered = 0;
inline constexpr std::size_t kMaxTransports = 64;  // of a worker

inline bool reaches(const transport::Transport& transport, MemoryKind kind) {
  for (const transport::Device& device : transport.devices())
    if ((device.capabilities.memory_kinds >> static_cast<unsigned>(kind) & 1) != 0) return true;
  return false;
}
// Whether peers need keys to reach a region through this transport; then a region without keys is not reachable there.
inline bool needs_keys(const transport::Transport& transport) {
  for (const transport::Device& device : transport.devices())
    if (device.capabilities.needs_keys) return true;
  return false;
}

// One memory's registrations with all transports of a worker.
struct Registration {
  std::vector<std::uint64_t> handles;                     // by transport
  std::vector<TransportKeys> keys;                        // of those that have some
  std::vector<std::pair<std::uint16_t, Status>> refused;  // transports that reach such memory, but not this
  std::uint64_t without = 0;                              // a bit for each of these
  std::uint64_t partly = 0;                               // a bit for each of which some devices refused it, not all
  Status status;  // not ok: of no use, but what was registered is to be deregistered all the same
};

// Registers memory with every transport. A transport may refuse it (a NIC what it cannot pin) if another one takes it,
// and if the missing keys tell peers so. Any thread.
Registration register_with(std::span<const std::unique_ptr<transport::Transport>> transports, std::uint16_t worker,
                           const Region& memory, const MemorySource& source);

struct RegionFile {  // shared pages behind a region, kept open by who registered it; -1: none
  int fd = -1;
  std::uint64_t offset = 0;
};
struct MemoryAt {  // where a region's memory is, as far as anybody can say
  transport::MemoryPlace place;
  int numa_node = -1;
};

// This engine's regions as one worker's transports have registered them. Owner: the worker, except for calls marked
// "any thread".
class LocalRegions {
 public:
  using Transports = std::span<const std::unique_ptr<transport::Transport>>;
  // `table`: which regions there are. Both outlive it.
  LocalRegions(Transports transports, std::uint16_t worker, transport::RegionTable& table)
      : transports_(transports), worker_(worker), table_(table), regions_(table.capacity()) {}

  Registration register_with_all(const Region& memory, const MemorySource& source) const {  // any thread
    return register_with(transports_, worker_, memory, source);
  }
  void add(RegionId id, Registration registration, RegionFile file, const MemoryAt& at) {
    regions_[id.slot] = {std::move(registration), file, at, {}};
  }
  // Registers memory of the engine itself, as a region of this worker alone. It is removed like any other region.
  Result<RegionId> add_own(std::byte* address, std::uint64_t size_bytes, Access access, int fd = -1);
  void remove(RegionId id) { regions_[id.slot] = {}; }
  void forget_handle(RegionId id, std::uint16_t transport) {  // it does not hold the memory any more
    regions_[id.slot].registration.handles[transport] = kNotRegistered;
  }

  [[nodiscard]] RegionFile file_of(RegionId id) const { return regions_[id.slot].file; }
  [[nodiscard]] const MemoryAt& at_of(RegionId id) const { return regions_[id.slot].at; }
  [[nodiscard]] const std::vector<std::uint64_t>& handles(RegionId id) const {  // by transport
    return regions_[id.slot].registration.handles;
  }
  [[nodiscard]] std::uint64_t handle(RegionId id, std::uint16_t transport) const {
    if (id.slot >= regions_.size()) return kNotRegistered;
    const auto& handles = regions_[id.slot].registration.handles;
    return transport < handles.size() ? handles[transport] : kNotRegistered;
  }
  [[nodiscard]] std::uint64_t without(RegionId id) const {  // a bit for each transport that does not have it
    return id.slot < regions_.size() ? regions_[id.slot].registration.without : 0;
  }
  [[nodiscard]] std::uint64_t partly(RegionId id) const {  // a bit for each of which some devices have it, not all
    return id.slot < regions_.size() ? regions_[id.slot].registration.partly : 0;
  }
  [[nodiscard]] Status why_without(RegionId id, std::uint16_t transport) const;  // ok: it has it
  [[nodiscard]] Place place_of(RegionId id, const Expectation* machine);         // kNoPlace: the machine is not known
  [[nodiscard]] Description describe(RegionId id) const;                         // for peers of this worker

 private:
  struct Local {
    Registration registration;
    RegionFile file;
    MemoryAt at;
    std::optional<Place> place;  // once the machine is known
  };

  const Transports transports_;
  const std::uint16_t worker_;
  transport::RegionTable& table_;
  std::vector<Local> regions_;  // by slot
};

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
