#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

namespace fabric {
struct Calls;
}

struct FabricOptions {
  // libfabric providers that may be used: "efa", "tcp", "verbs;ofi_rxm". Empty: those for NICs that no other transport
  // serves (sys::kNicProviders).
  std::vector<std::string> providers;
  // Their domains, as `fairway topo --providers` lists them: "rdmap16s27-rdm", "eth0". Empty: all.
  std::vector<std::string> domains;
  // For providers over IP: where endpoints listen, a host without a port. "0.0.0.0" and "::" mean every interface.
  std::string listen_host = "127.0.0.1";
  std::shared_ptr<const fabric::Calls> calls;  // null: the system's libfabric
};

// One worker's transport over libfabric's reliable datagram endpoints. `regions` and `runtime` outlive it.
Result<std::unique_ptr<Transport>> open_fabric_transport(RegionTable& regions, Runtime& runtime,
                                                         const FabricOptions& options);

}  // namespace fairway::transport
