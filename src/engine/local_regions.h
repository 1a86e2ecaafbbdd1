#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
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

// What a worker's transports have of this engine's regions. Owner: the worker, but where "any thread" is said.
class LocalRegions {
 public:
  using Transports = std::span<const std::unique_ptr<transport::Transport>>;
  // `table`: which regions there are. Both outlive it.
  LocalRegions(Transports transports, std::uint16_t worker, transport::RegionTable& table)
      : transports_(transports), worker_(worker), table_(table), regions_(table.capacity()) {}

  Registration register_with_all(const transport::MemoryDescription& memory) const {  // any thread
    return register_with(transports_, worker_, memory);
  }
  void add(RegionId id, Registration registration, RegionFile file, const MemoryAt& at) {
    regions_[id.slot] = {std::move(registration), file, at, {}};
  }
  // Memory of the engine's own, as a region of this worker alone. Its end is like any other region's.
  Result<RegionId> add_own(std::byte* address, std::uint64_t size_bytes, Access access, int fd = -1);
  void remove(RegionId id) { regions_[id.slot] = {}; }

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
  [[nodiscard]] std::uint64_t partly(RegionId id) const;  // a bit for each of which some devices have it, not all
  [[nodiscard]] Status why_without(RegionId id, std::uint16_t transport) const;         // ok: it has it
  [[nodiscard]] std::string_view how_with(RegionId id, std::uint16_t transport) const;  // empty: the only way
  // Why that device has it not; ok: it has.
  [[nodiscard]] Status why_partly(RegionId id, std::uint16_t transport, transport::DeviceIndex device) const;
  [[nodiscard]] Place place_of(RegionId id, const Expectation* machine);  // kNoPlace: the machine is not known
  [[nodiscard]] Description describe(RegionId id) const;                  // for peers of this worker

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
