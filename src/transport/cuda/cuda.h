#pragma once

#include <memory>

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

// One worker's transport for memory of NVIDIA GPUs between processes of one host, or within one. What is not a GPU's it
// moves as shm does. `regions` and `runtime` outlive it. With `strict` there is none, as the driver opens whole
// allocations, of which regions are a part.
Result<std::unique_ptr<Transport>> open_cuda_transport(RegionTable& regions, Runtime& runtime, bool strict = false);
// The same without links, by the name "staged": it registers memory and copies for the engine's staging.
Result<std::unique_ptr<Transport>> open_staging_transport(RegionTable& regions, Runtime& runtime);

}  // namespace fairway::transport
