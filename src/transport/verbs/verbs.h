#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

namespace verbs {
struct Library;
}

struct VerbsOptions {
  // Devices or ports of this host that may be used: "mlx5_0", "mlx5_0/1". Empty: all that have an address.
  std::vector<std::string> devices;
  // Queue pairs to each port of a peer. One fills a port in most machines; more help where the NIC spreads its work
  // over engines by queue pair.
  std::uint16_t lanes = 1;
  // Whether a small read follows writes before they count as done, so that a NIC's bytes are visible to the target's
  // CPU and not only underway to it. Unset: on hardware, where it is needed; a software device copies by CPU.
  std::optional<bool> read_back;
  std::shared_ptr<const verbs::Library> library;  // null: the system's
};

// One worker's transport over reliable queue pairs of RDMA NICs (RoCE v2, InfiniBand), the lanes. `regions` and
// `runtime` outlive it.
std::unique_ptr<Transport> make_verbs_transport(RegionTable& regions, Runtime& runtime, const VerbsOptions& options);

}  // namespace fairway::transport
