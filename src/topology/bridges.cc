#include "topology/bridges.h"

namespace fairway::topology {

void classify_bridges(Machine& machine) {
  std::vector<bool> has_bridge(machine.pci.size(), false);
  std::vector<bool> has_endpoint(machine.pci.size(), false);
  for (const auto& device : machine.pci) {
    if (device.parent) (device.kind == PciKind::endpoint ? has_endpoint : has_bridge)[device.parent.index] = true;
  }
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    auto& device = machine.pci[i];
    if (device.kind == PciKind::endpoint) continue;
    std::size_t above = 0;
    for (auto at = device.parent; at && above <= kMaxPciDepth; at = machine.pci[at.index].parent) ++above;
    if (above == 0) {
      device.kind = PciKind::root_port;
    } else if (above % 2 == 0) {
      device.kind = PciKind::switch_downstream;
    } else {
      // An upstream port has only ports below it; a bridge to conventional PCI has devices.
      const bool conventional = has_endpoint[i] && !has_bridge[i];
      device.kind = conventional ? PciKind::bridge : PciKind::switch_upstream;
    }
  }
}

}  // namespace fairway::topology
