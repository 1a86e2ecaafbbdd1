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
  // Whether a small read follows writes before they are done, so that the bytes are visible to the target's CPU. Unset:
  // only on hardware, since software devices copy by the CPU.
  std::optional<bool> read_back;
  // Whether sends and writes carry immediate data. Unset: yes, except with iWARP. Otherwise a message after the write
  // carries the immediate.
  std::optional<bool> immediates = {};
  std::shared_ptr<const verbs::Library> library = {};  // null: the system's
  std::shared_ptr<const verbs::CmLibrary> cm_library = {};
};

// invalid_argument, naming the option, for values that are never valid.
Status check_rdma(const RdmaOptions& options);

// One worker's transport over RC queue pairs of RDMA NICs (RoCE v2, InfiniBand, iWARP). `regions` and `runtime` outlive
// it.
Result<std::unique_ptr<Transport>> open_verbs_transport(RegionTable& regions, Runtime& runtime,
                                                        const VerbsOptions& options);

}  // namespace fairway::transport
