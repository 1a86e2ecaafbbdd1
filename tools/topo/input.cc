#include <fmt/format.h>

#include "topo.h"
#include "topology/discover.h"
#include "topology/load.h"

namespace fairway::tool {

Result<topology::Fabric> read_fabric(const TopoInput& input, bool keep_identities) {
  if (!input.from.empty()) return topology::load_fabric(input.from);
  topology::DiscoverOptions options;
  options.keep_identities = keep_identities;
  Result<topology::Machine> machine = topology::discover(options);
  if (!machine) return machine.status();
  topology::Fabric fabric;
  fabric.machines.push_back(std::move(machine).value());
  return fabric;
}

Result<topology::Machine> read_machine(const TopoInput& input, bool keep_identities) {
  Result<topology::Fabric> fabric = read_fabric(input, keep_identities);
  if (!fabric) return fabric.status();
  if (fabric->machines.size() != 1) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} holds {} machines and this needs one; take a snapshot of a single machine",
                              input.from, fabric->machines.size()));
  }
  return std::move(fabric->machines[0]);
}

Exit cannot_read(const Tool& tool, const TopoInput& input, const Status& status) {
  return input.from.empty() ? tool.fail(status) : tool.unreadable(status);
}

Result<topology::Machine> read_machine_file(const std::string& path) {
  return read_machine({.from = path});
}

}  // namespace fairway::tool
