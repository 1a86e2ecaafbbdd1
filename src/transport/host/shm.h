#pragma once

#include <memory>

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

// Which methods may be used. Tests and comparisons switch faster ones off to get the next slower one.
struct ShmOptions {
  bool map = true;  // map the peer's memory files
  bool cma = true;  // cross-memory attach
};

// One worker's transport between processes of one host. `regions` and `runtime` outlive it.
Result<std::unique_ptr<Transport>> open_shm_transport(RegionTable& regions, Runtime& runtime,
                                                      const ShmOptions& options = {});

}  // namespace fairway::transport
