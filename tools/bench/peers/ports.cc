#include <string>

#include "peers.h"
#include "topology/discover.h"

namespace fairway::tool::bench {
namespace {

// The GID that tools use: InfiniBand's, else a routable one of RoCE v2, IPv4 before IPv6.
const topology::Gid* usable(const topology::RdmaPort& port) {
  const topology::Gid* best = nullptr;
  for (const topology::Gid& gid : port.gids) {
    const std::string type = gid.type.value_or(""), scope = gid.scope.value_or("");
    if (type == "IB") return &gid;
    if (type != "RoCE v2" || scope == "link-local") continue;
    if (best == nullptr || (scope == "IPv4" && best->scope.value_or("") != "IPv4")) best = &gid;
  }
  return best;
}

std::string address_of(const topology::Machine& machine, const topology::RdmaPort& port) {
  const std::string wanted = port.interface.value_or("");
  for (const topology::NetInterface& interface : machine.interfaces) {
    if (interface.name != wanted || !interface.addresses) continue;
    for (const std::string& each : *interface.addresses)
      if (each.find(':') == std::string::npos) return each.substr(0, each.find('/'));
  }
  return {};
}

}  // namespace

std::vector<PortName> two_ports() {
  topology::DiscoverOptions options;
  options.use_hwloc = options.use_gpu_driver = options.use_verbs = false;  // sysfs has all of it
  options.keep_identities = true;
  const auto machine = topology::discover(options);
  std::vector<PortName> ports;
  if (!machine) return ports;
  for (const topology::RdmaDevice& device : machine->rdma)
    for (const topology::RdmaPort& port : device.ports)
      if (const topology::Gid* gid = usable(port); gid != nullptr && port.state.value_or("") == "ACTIVE")
        ports.push_back(
            {device.name, static_cast<int>(port.number), static_cast<int>(gid->index), address_of(*machine, port)});
  if (ports.size() == 1) ports.push_back(ports.front());  // a port reaches itself
  return ports;
}

}  // namespace fairway::tool::bench
