#include "transport/registry.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "transport/cuda/cuda.h"
#include "transport/fabric/fabric.h"
#include "transport/host/shm.h"
#include "transport/loopback/loopback.h"
#include "transport/tcp/tcp.h"
#include "transport/verbs/verbs.h"

// The one file that names the concrete transports.
namespace fairway::transport {
namespace {

constexpr std::array<std::string_view, 7> kNames{"loopback", "shm", "cuda", "staged", "verbs", "fabric", "tcp"};

// Common names for paths that are not transports here, and what to use instead.
struct Alias {
  std::string_view name, instead;
};
constexpr Alias kAliases[] = {
    {"nvlink", "\"cuda\" takes NVLink where it joins two GPUs, and PCIe elsewhere"},
    {"pcie", "\"cuda\" takes PCIe where no NVLink joins two GPUs"},
    {"p2p", "\"cuda\" moves between GPUs of a host"},
    {"ipc", "\"cuda\" reaches memory from cudaMalloc by CUDA IPC"},
    {"fd", "\"cuda\" reaches memory of virtual memory management by descriptors"},
    {"rdma", "\"verbs\" is RDMA"},
    {"ib", "\"verbs\" is InfiniBand, RoCE and iWARP"},
    {"roce", "\"verbs\" is InfiniBand, RoCE and iWARP"},
    {"efa", "\"fabric\" is libfabric, and EFA with it"},
    {"cma", "\"shm\" takes cross-memory attach where memory cannot be mapped"},
    {"sm", "\"shm\" is shared memory"},
};

// The host of "host:port", "[v6]:port".
std::string host_of(const std::string& listen) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  return host.size() > 2 && host.front() == '[' ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

Status check_names(const std::vector<std::string>& names, const std::vector<OtherTransport>& others) {
  for (const std::string& name : names) {
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) continue;
    if (std::any_of(others.begin(), others.end(), [&](const OtherTransport& each) { return each.name == name; }))
      continue;
    std::string known;
    for (const std::string_view each : kNames) known += (known.empty() ? "" : ", ") + std::string(each);
    for (const OtherTransport& each : others) known += ", " + each.name;
    const auto alias =
        std::find_if(std::begin(kAliases), std::end(kAliases), [&](const Alias& a) { return a.name == name; });
    return {ErrorCode::invalid_argument,
            "EngineOptions::transports names \"" + name + "\", which this build does not have; it has: " + known +
                (alias == std::end(kAliases) ? std::string() : ". " + std::string(alias->instead))};
  }
  return {};
}

Result<std::vector<std::unique_ptr<Transport>>> open_transports(const RegistryOptions& options, RegionTable& regions,
                                                                Runtime& runtime) {
  const auto wanted = [&](std::string_view name) {
    return options.names.empty() || std::find(options.names.begin(), options.names.end(), name) != options.names.end();
  };
  if (const Status status = check_rdma(options.rdma); !status) return status;
  std::vector<std::unique_ptr<Transport>> transports;
  Status failed;  // of one that was asked for
  const auto add = [&](bool asked_for, Result<std::unique_ptr<Transport>> opened) {
    if (opened)
      transports.push_back(std::move(*opened));
    else if (failed && (asked_for || !options.names.empty()))
      failed = opened.status();
  };
  for (const OtherTransport& each : options.others)
    if (wanted(each.name)) add(true, each.open(regions, runtime));
  if (options.loopback != nullptr && wanted("loopback"))
    transports.push_back(open_loopback_transport(options.loopback, regions, runtime));
  if (wanted("shm"))
    add(false, open_shm_transport(regions, runtime, {!options.strict_isolation, !options.strict_isolation}));
  if (wanted("cuda"))
    add(false, open_cuda_transport(regions, runtime, options.strict_isolation, options.keep_links_awake));
  if (options.names.empty() ? options.strict_isolation : wanted("staged"))  // it opens nothing of a peer's
    add(false, open_staging_transport(regions, runtime));
  if (wanted("verbs"))
    add(options.rdma != RdmaOptions(), open_verbs_transport(regions, runtime, {options.rdma, {}, {}}));
  if (wanted("fabric")) {
    FabricOptions fabric;
    fabric.providers = options.providers;
    // With libfabric's provider shm the peer's CPU can reach all memory of this process.
    if (options.strict_isolation) std::erase(fabric.providers, "shm");
    fabric.listen_host = host_of(options.listen);
    if (options.providers.empty() || !fabric.providers.empty())
      add(!options.providers.empty(), open_fabric_transport(regions, runtime, fabric));
  }
  if (wanted("tcp")) {
    TcpOptions tcp;
    tcp.listen_host = host_of(options.listen);
    tcp.interfaces = options.interfaces;
    add(!options.interfaces.empty(), open_tcp_transport(regions, runtime, tcp));
  }
  if (!failed) return failed;
  return transports;
}

}  // namespace fairway::transport
