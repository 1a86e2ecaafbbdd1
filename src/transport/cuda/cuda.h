#pragma once

#include <memory>

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

// One worker's transport for memory of NVIDIA GPUs, between processes of one host or within one. It moves host memory
// like shm. `regions` and `runtime` outlive it. Unsupported with `strict`, since the driver imports whole allocations,
// not only the regions in them. `keep_awake`: see EngineOptions::keep_links_awake.
Result<std::unique_ptr<Transport>> open_cuda_transport(RegionTable& regions, Runtime& runtime, bool strict = false,
                                                       bool keep_awake = false);
// The same without links, named "staged": it registers memory and copies for the engine's staging.
Result<std::unique_ptr<Transport>> open_staging_transport(RegionTable& regions, Runtime& runtime);

}  // namespace fairway::transport
