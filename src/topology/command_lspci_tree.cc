#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/bridges.h"
#include "topology/command_text.h"
#include "topology/sysfs.h"

// The PCI tree from what `lspci -vvv` says of each bridge: the buses below it.
namespace fairway::topology {
namespace {

constexpr auto kLspciTree = Source::lspci;

// NUMA nodes that only devices name: a number, without CPUs or socket.
void add_nodes(Machine& machine) {
  if (!machine.numa_nodes.empty()) return;
  std::set<std::uint32_t> numbers;
  for (const auto& device : machine.pci) {
    if (device.numa_node && device.numa_node.source == kLspciTree) numbers.insert(*device.numa_node);
  }
  for (const auto number : numbers) {
    NumaNode node;
    node.os_index = number;
    machine.numa_nodes.push_back(std::move(node));
  }
}

}  // namespace

void place_by_buses(const std::map<BusId, BusesBelow>& bridges, const std::string& place, Machine& machine) {
  if (bridges.empty()) return;
  std::map<BusId, Ref<PciDevice>> index;
  for (std::size_t i = 0; i < machine.pci.size(); ++i) index[machine.pci[i].bus_id] = Ref<PciDevice>(i);
  std::map<std::pair<std::uint32_t, std::uint8_t>, Ref<PciDevice>> above;  // the bridge above a bus
  for (const auto& [bus_id, buses] : bridges) {
    const auto found = index.find(bus_id);
    // A bridge that leads to its own bus or upwards would be a cycle.
    if (found == index.end() || buses.first <= bus_id.bus || buses.last < buses.first) continue;
    const auto [there, fresh] = above.try_emplace({bus_id.domain, buses.first}, found->second);
    if (!fresh) {
      add_note(machine, NoteKind::conflict, bus_id.to_string(),
               fmt::format("{}: leads to bus {:02x}, as {} does: the first is kept", place, buses.first,
                           machine.pci[there->second.index].bus_id.to_string()));
    }
  }
  std::map<std::pair<std::uint32_t, std::uint8_t>, Ref<HostBridge>> roots;
  for (std::size_t i = 0; i < machine.host_bridges.size(); ++i)
    roots[{machine.host_bridges[i].domain, machine.host_bridges[i].bus}] = Ref<HostBridge>(i);
  for (auto& device : machine.pci) {
    if (device.parent || device.host_bridge) continue;  // another output placed it
    const auto found = above.find({device.bus_id.domain, device.bus_id.bus});
    if (found != above.end()) {
      device.parent = found->second;
      continue;
    }
    // A bus without a bridge above it is a root bus.
    const auto [root, fresh] =
        roots.try_emplace({device.bus_id.domain, device.bus_id.bus}, Ref<HostBridge>(machine.host_bridges.size()));
    if (fresh) {
      HostBridge bridge;
      bridge.domain = device.bus_id.domain;
      bridge.bus = bridge.last_bus = device.bus_id.bus;
      machine.host_bridges.push_back(bridge);
    }
    device.host_bridge = root->second;
    if (const auto below = bridges.find(device.bus_id); below != bridges.end()) {
      auto& last = machine.host_bridges[root->second.index].last_bus;
      last = std::max(last, below->second.last);
    }
  }
  // Without capabilities the kinds of ports follow from the tree.
  bool named = false;
  for (const auto& device : machine.pci)
    named = named || device.kind == PciKind::root_port || device.kind == PciKind::switch_upstream;
  if (!named) classify_bridges(machine);
  // Drop devices that no path uses.
  std::vector<PciDevice> kept;
  std::vector<Ref<PciDevice>> moved(machine.pci.size());
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    const auto& device = machine.pci[i];
    if (device.kind == PciKind::endpoint && !is_kept(device.class_code.value_or(0), device.vendor_id.value_or(0)))
      continue;
    moved[i] = Ref<PciDevice>(kept.size());
    kept.push_back(device);
  }
  for (auto& device : kept) {
    if (device.parent) device.parent = moved[device.parent.index];
  }
  machine.pci = std::move(kept);
  drop_empty_bridges(machine);
  add_nodes(machine);
  add_note(machine, NoteKind::inferred, "",
           fmt::format("{}: the PCI tree is built from the bus numbers of its bridges", place));
}

}  // namespace fairway::topology
