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

// A transport from outside this library. A value; `open` is called once for each worker.
struct OtherTransport {
  std::string name;  // Transport::name(), also for EngineOptions::transports
  std::function<Result<std::unique_ptr<Transport>>(RegionTable& regions, Runtime& runtime)> open;
};

struct RegistryOptions {
  std::vector<std::string> names;  // which may be used; empty: all
  std::shared_ptr<Loopback> loopback;
  std::string listen = "127.0.0.1:0";   // control's address: transports listen on the same host
  bool strict_isolation = false;        // never map more of a peer's memory than its regions
  std::vector<std::string> interfaces;  // that sockets may use; empty: all
  RdmaOptions rdma;
  std::vector<std::string> providers;  // of libfabric that may be used; empty: those for NICs that only it serves
  bool keep_links_awake = false;       // between GPUs
  std::vector<OtherTransport> others;  // ranked before this library's own
};

// invalid_argument for an unknown name; the message lists the known ones.
Status check_names(const std::vector<std::string>& names, const std::vector<OtherTransport>& others = {});

// One worker's transports: those that work on this machine, fastest first. Fails with the status of a transport that
// was asked for by name and does not work.
Result<std::vector<std::unique_ptr<Transport>>> open_transports(const RegistryOptions& options, RegionTable& regions,
                                                                Runtime& runtime);

}  // namespace fairway::transport
