#pragma once

#include <functional>

#include "fairway/engine.h"

#include "engine/tables/engine_tables.h"
#include "engine/waiting.h"
#include "engine/workers.h"
#include "transport/gpu_access.h"
#include "transport/region_table.h"

namespace fairway::engine {

// Converts a stream_put to the transport's form, or says why it is refused: the mapping has ended, does not allow it,
// or is too small.
Result<transport::GpuAccess::Put> plan_put(const Mapping& mapping, const StreamPut& put);
Status check_wait(const StreamWait& wait);

// Engine::map and the stream calls, as callers of the API see them. Any thread.
class MappedRegions {
 public:
  // Everything given outlives it.
  MappedRegions(EngineTables& tables, const Workers& workers, Waiting& waiting)
      : tables_(tables), workers_(workers), waiting_(waiting) {}

  // As the calls of Engine with these names.
  Result<Mapping> map(const RemoteRegion& region, int gpu, Timeout timeout);
  Result<Mapping> map(const Region& region, int gpu, Timeout timeout);
  Status unmap(MappingId mapping);
  Status stream_put(MappingId to, const StreamPut& put, void* stream);
  Status stream_wait_signal(const StreamWait& wait, void* stream);

 private:
  Result<Mapping> map_by(Timeout timeout, const std::function<Status(transport::Reach&, Mapping&, Status&)>& ask);

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
};

}  // namespace fairway::engine
