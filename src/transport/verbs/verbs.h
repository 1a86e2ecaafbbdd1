#pragma once

#include <memory>
#include <optional>

#include "fairway/options.h"

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

namespace verbs {
struct CmLibrary;
struct Library;
}  // namespace verbs

struct VerbsOptions {
  RdmaOptions rdma;
  // Whether a small read follows writes before they count as done, so that a NIC's bytes are visible to the target's
  // CPU and not only underway to it. Unset: on hardware, where it is needed; a software device copies by CPU.
  std::optional<bool> read_back;
  // Whether sends and writes may carry immediates. Unset: all but iWARP's. Without, messages carry them behind a write.
  std::optional<bool> immediates = {};
  std::shared_ptr<const verbs::Library> library = {};  // null: the system's
  std::shared_ptr<const verbs::CmLibrary> cm_library = {};
};

// invalid_argument, with the option's name, for what no port of any host can have.
Status check_rdma(const RdmaOptions& options);

// One worker's transport over reliable queue pairs of RDMA NICs (RoCE v2, InfiniBand, iWARP), the lanes. `regions` and
// `runtime` outlive it.
Result<std::unique_ptr<Transport>> open_verbs_transport(RegionTable& regions, Runtime& runtime,
                                                        const VerbsOptions& options);

}  // namespace fairway::transport
