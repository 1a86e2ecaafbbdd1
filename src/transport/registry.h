#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fairway/loopback.h"
#include "fairway/options.h"

#include "core/runtime.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

// A transport that is none of this library's. A value; `open` is called once for each worker.
struct OtherTransport {
  std::string name;  // as the transport itself says, and EngineOptions::transports
  std::function<Result<std::unique_ptr<Transport>>(RegionTable& regions, Runtime& runtime)> open;
};

struct RegistryOptions {
  std::vector<std::string> names;  // which may be used; empty: all
  std::shared_ptr<Loopback> loopback;
  std::string listen = "127.0.0.1:0";   // of the engine's control: lanes are accepted at the same host
  bool strict_isolation = false;        // no more of a peer's memory than its regions is reachable here
  std::vector<std::string> interfaces;  // that sockets may use; empty: all
  RdmaOptions rdma;
  std::vector<std::string> providers;  // of libfabric, that may be used; empty: those of NICs of its own
  std::vector<OtherTransport> others;  // faster than ours: what is put in is meant to be used
};

// invalid_argument that names what is not a transport, and those that are.
Status check_names(const std::vector<std::string>& names, const std::vector<OtherTransport>& others = {});

// One worker's transports: those that work on this machine, fastest first. The status of a transport that was asked
// for by name and does not work.
Result<std::vector<std::unique_ptr<Transport>>> open_transports(const RegistryOptions& options, RegionTable& regions,
                                                                Runtime& runtime);

}  // namespace fairway::transport
