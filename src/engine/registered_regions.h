#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "fairway/engine.h"

#include "engine/description.h"
#include "engine/waiting.h"
#include "engine/workers.h"
#include "sys/fd.h"
#include "sys/memory_file.h"
#include "transport/region_table.h"

namespace fairway::engine {

// This engine's regions as the callers of the API see them: registered with every worker, described, and ended. Any
// thread.
class RegisteredRegions {
 public:
  // Everything given outlives it.
  RegisteredRegions(std::uint32_t capacity, Runtime& runtime, const Workers& workers, Waiting& waiting)
      : runtime_(runtime), workers_(workers), waiting_(waiting), table_(capacity) {}

  // As the calls of Engine: register_memory, allocate.
  Result<Region> add(void* address, std::size_t size_bytes, Access access, const MemorySource& source);
  Result<Region> allocate(std::size_t size_bytes, Access access);
  // deregister() in two steps. The first stops new uses. The second waits until no use is left, and frees what
  // allocate() made.
  Status revoke(RegionId id) { return table_.revoke(id); }
  Status end(RegionId id, Timeout timeout);

  [[nodiscard]] Result<std::vector<std::byte>> describe(RegionId id, std::uint64_t incarnation) const;
  [[nodiscard]] std::size_t count() const;
  void free_all();  // once no worker touches any
  transport::RegionTable& table() { return table_; }
  [[nodiscard]] const transport::RegionTable& table() const { return table_; }

 private:
  struct Registered {
    Region region;
    std::vector<TransportKeys> keys;
    sys::MemoryFile memory;  // of allocate()
    sys::Fd file;            // of memory that came with a descriptor
  };
  [[nodiscard]] transport::MemoryPlace place_of(const void* address, MemoryKind said) const;
  void forget(RegionId id);

  Runtime& runtime_;
  const Workers& workers_;
  Waiting& waiting_;
  transport::RegionTable table_;
  mutable std::mutex mutex_;                     // guards regions_
  std::map<std::uint32_t, Registered> regions_;  // by slot
};

}  // namespace fairway::engine
