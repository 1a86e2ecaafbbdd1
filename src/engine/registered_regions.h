#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "fairway/engine.h"

#include "engine/tables/engine_tables.h"
#include "engine/tables/regions.h"
#include "engine/waiting.h"
#include "engine/workers.h"
#include "sys/fd.h"
#include "sys/memory_file.h"
#include "transport/janitor.h"
#include "transport/region_table.h"

namespace fairway::engine {

// This engine's regions as the callers of the API see them: registered with every worker, described, and ended. Any
// thread.
class RegisteredRegions {
 public:
  // Everything given outlives it.
  RegisteredRegions(EngineTables& tables, const Workers& workers, Waiting& waiting)
      : tables_(tables), workers_(workers), waiting_(waiting) {}

  // As the calls of Engine: register_memory, allocate.
  Result<Region> add(void* address, std::size_t size_bytes, Access access, const MemorySource& source);
  Result<Region> allocate(std::size_t size_bytes, Access access);
  // The end of a region: under way until no worker can touch it any more. All who ask for the region's end share it.
  struct Ending {
    std::atomic<std::uint32_t> left;  // workers
    std::mutex mutex;                 // guards the rest
    std::uint32_t waiting = 0;        // callers; the last to come back unmaps `memory`
    bool over = false;
    Status status;           // of an end that is over
    sys::MemoryFile memory;  // of allocate(), once nothing touches it
  };
  // deregister() in two steps. The first stops new uses, or finds the end that an earlier call began; after an end that
  // a transport refused it asks again. `revoked`: nothing is left to end. The second waits until no use is left.
  Result<std::shared_ptr<Ending>> begin_end(RegionId id);
  Status wait_for_end(RegionId id, Ending& ending, Timeout timeout);
  [[nodiscard]] Fence fence_state(RegionId id) const;

  [[nodiscard]] Result<std::vector<std::byte>> describe(RegionId id, std::uint64_t incarnation) const;
  [[nodiscard]] std::size_t count() const;
  void free_all();  // once no worker touches any

 private:
  struct Registered {
    Region region;
    std::vector<TransportKeys> keys;
    sys::MemoryFile memory;  // of allocate()
    sys::Fd file;            // of memory that came with a descriptor
    std::shared_ptr<Ending> ending;
  };
  [[nodiscard]] transport::MemoryPlace place_of(const void* address, MemoryKind said) const;
  void ended(RegionId id, Ending& ending);
  sys::MemoryFile forget(RegionId id);

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
  mutable std::mutex mutex_;                     // guards regions_
  std::map<std::uint32_t, Registered> regions_;  // by slot
  transport::Janitor unmapper_{tables_.runtime, "fairway-unmap"};
};

}  // namespace fairway::engine
