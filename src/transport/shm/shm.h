#pragma once

#include <memory>

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

// What may be used; for tests and comparisons, each slower way is what remains without the one before it.
struct ShmOptions {
  bool map = true;     // memory files of the peer
  bool attach = true;  // cross-memory attach
};

// One worker's transport between processes of one host. `regions` and `runtime` outlive it.
Result<std::unique_ptr<Transport>> open_shm_transport(RegionTable& regions, Runtime& runtime,
                                                      const ShmOptions& options = {});

}  // namespace fairway::transport
