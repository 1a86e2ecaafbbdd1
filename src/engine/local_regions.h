#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/expectation.h"
#include "engine/registration.h"
#include "transport/region_table.h"

namespace fairway::engine {

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

}  // namespace fairway::engine
