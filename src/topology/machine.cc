#include "topology/machine.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/devices.h"

namespace fairway::topology {

void add_note(Machine& machine, NoteKind kind, std::string subject, std::string text) {
  Note note{kind, std::move(subject), std::move(text)};
  if (std::ranges::find(machine.notes, note) != machine.notes.end()) return;
  if (machine.notes.size() < kMaxNotes - 1 || kind == NoteKind::left_out) {
    machine.notes.push_back(std::move(note));
    return;
  }
  Note rest{NoteKind::remark, "", fmt::format("more notes than {} were left out", kMaxNotes)};
  if (std::ranges::find(machine.notes, rest) == machine.notes.end()) machine.notes.push_back(std::move(rest));
}

void leave_out(Machine& machine, const LimitOf& limit) {
  add_note(machine, NoteKind::left_out, std::string(limit.what),
           fmt::format("there are more than {}: what stands behind those is left out", limit.most));
}

void sort_pci(Machine& machine) {
  std::vector<std::uint32_t> order(machine.pci.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(
      order, [&machine](std::uint32_t a, std::uint32_t b) { return machine.pci[a].bus_id < machine.pci[b].bus_id; });
  std::vector<std::uint32_t> place(order.size());
  std::vector<PciDevice> sorted;
  sorted.reserve(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(std::move(machine.pci[order[i]]));
  }
  const auto move_ref = [&place](Ref<PciDevice>& ref) {
    if (ref && ref.index < place.size()) ref.index = place[ref.index];
  };
  for (auto& device : sorted) move_ref(device.parent);
  for (auto& gpu : machine.gpus) move_ref(gpu.pci);
  for (auto& nv_switch : machine.nv_switches) move_ref(nv_switch.pci);
  for (auto& interface : machine.interfaces) move_ref(interface.pci);
  for (auto& nic : machine.nics) {
    for (auto& function : nic.functions) move_ref(function);
  }
  machine.pci = std::move(sorted);
}

void scrub(Machine& machine) {
  machine.host_name.forget();
  for (auto& gpu : machine.gpus) {
    gpu.uuid.forget();
    gpu.serial.forget();
  }
  for (auto& rdma : machine.rdma) {
    rdma.node_guid.forget();
    rdma.system_guid.forget();
    for (auto& port : rdma.ports) {
      for (auto& gid : port.gids) gid.address.forget();
    }
  }
  for (auto& interface : machine.interfaces) {
    interface.mac.forget();
    interface.addresses.forget();
  }
}

Ref<PciDevice> find_pci(const Machine& machine, const BusId& bus_id) {
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    if (machine.pci[i].bus_id == bus_id) return Ref<PciDevice>(i);
  }
  return {};
}

Ref<NetInterface> find_interface(const Machine& machine, std::string_view name) {
  for (std::size_t i = 0; i < machine.interfaces.size(); ++i) {
    if (machine.interfaces[i].name == name) return Ref<NetInterface>(i);
  }
  return {};
}

Ref<RdmaDevice> find_rdma(const Machine& machine, std::string_view name) {
  for (std::size_t i = 0; i < machine.rdma.size(); ++i) {
    if (machine.rdma[i].name == name) return Ref<RdmaDevice>(i);
  }
  return {};
}

Ref<NumaNode> find_numa(const Machine& machine, std::uint32_t os_index) {
  for (std::size_t i = 0; i < machine.numa_nodes.size(); ++i) {
    if (machine.numa_nodes[i].os_index == os_index) return Ref<NumaNode>(i);
  }
  return {};
}

Ref<Gpu> find_gpu(const Machine& machine, std::uint32_t ordinal) {
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    if (machine.gpus[i].ordinal == ordinal) return Ref<Gpu>(i);
  }
  return {};
}

std::string gpu_name(const Machine& machine, const Gpu& gpu) {
  return is_numbered(gpu) ? fmt::format("GPU{}", gpu.ordinal) : "GPU " + machine.pci[gpu.pci.index].bus_id.to_string();
}

std::string gpu_and_bus(const Machine& machine, const Gpu& gpu) {
  return gpu.pci && is_numbered(gpu)
             ? fmt::format("GPU{} ({})", gpu.ordinal, machine.pci[gpu.pci.index].bus_id.to_string())
             : gpu_name(machine, gpu);
}

std::string node_name(const Machine& machine, NodeRef node) {
  const auto i = node.index;
  switch (node.kind) {
    case NodeKind::package: return fmt::format("package {}", machine.packages[i].os_index);
    case NodeKind::numa_node: return fmt::format("NUMA node {}", machine.numa_nodes[i].os_index);
    case NodeKind::host_bridge:
      return fmt::format("host bridge {:04x}:{:02x}", machine.host_bridges[i].domain, machine.host_bridges[i].bus);
    case NodeKind::pci: return machine.pci[i].bus_id.to_string();
    case NodeKind::gpu: return gpu_name(machine, machine.gpus[i]);
    case NodeKind::nic: return machine.nics[i].name;
    case NodeKind::rdma: return machine.rdma[i].name;
    case NodeKind::interface: return machine.interfaces[i].name;
    case NodeKind::bond:
      return machine.bonds[i].interface ? machine.interfaces[machine.bonds[i].interface.index].name : "bond";
    case NodeKind::nv_switch: return fmt::format("NVSwitch{}", i);
    case NodeKind::net_switch: return fmt::format("switch {}", i);
    case NodeKind::none: break;
  }
  return "none";
}

Ref<PciDevice> pci_of(const Machine& machine, NodeRef node) {
  switch (node.kind) {
    case NodeKind::pci: return Ref<PciDevice>(node.index);
    case NodeKind::gpu: return machine.gpus[node.index].pci;
    case NodeKind::nv_switch: return machine.nv_switches[node.index].pci;
    case NodeKind::interface: return machine.interfaces[node.index].pci;
    case NodeKind::nic: {
      const auto& functions = machine.nics[node.index].functions;
      return functions.empty() ? Ref<PciDevice>{} : functions.front();
    }
    case NodeKind::rdma:
      for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
        if (machine.nics[i].rdma.index == node.index) return pci_of(machine, {NodeKind::nic, i});
      }
      return {};
    default: return {};
  }
}

Fact<std::uint32_t> numa_of(const Machine& machine, NodeRef node) {
  if (node.kind == NodeKind::gpu && machine.gpus[node.index].numa_node) return machine.gpus[node.index].numa_node;
  if (node.kind == NodeKind::nic && machine.nics[node.index].numa_node) return machine.nics[node.index].numa_node;
  if (node.kind == NodeKind::interface && machine.interfaces[node.index].numa_node) {
    return machine.interfaces[node.index].numa_node;
  }
  if (node.kind == NodeKind::host_bridge) return machine.host_bridges[node.index].numa_node;
  auto device = pci_of(machine, node);
  Ref<HostBridge> root;
  for (std::size_t depth = 0; device && depth <= kMaxPciDepth; ++depth) {
    const auto& pci = machine.pci[device.index];
    if (pci.numa_node) return pci.numa_node;
    root = pci.host_bridge;
    device = pci.parent;
  }
  return root ? machine.host_bridges[root.index].numa_node : Fact<std::uint32_t>{};
}

namespace {

// The ports that can carry bytes: those that are not known to be down, or all if every one is.
std::vector<const RdmaPort*> carrying_ports(const RdmaDevice& device) {
  std::vector<const RdmaPort*> out;
  for (const auto& port : device.ports) {
    if (port.state.value_or("ACTIVE") == "ACTIVE") out.push_back(&port);
  }
  if (!out.empty()) return out;
  for (const auto& port : device.ports) out.push_back(&port);
  return out;
}

}  // namespace

Fact<double> nic_one_flow_gbps(const Machine& machine, const Nic& nic) {
  if (nic.bond) {
    const auto leg = bond_one_flow_gbps(machine, machine.bonds[nic.bond.index]);
    if (leg) return leg;
  }
  if (nic.rdma) {
    for (const auto* port : carrying_ports(machine.rdma[nic.rdma.index])) {
      if (port->rate_gbps) return port->rate_gbps;
    }
  }
  for (const auto interface : nic.interfaces) {
    const auto& speed = machine.interfaces[interface.index].speed_gbps;
    if (speed) return speed;
  }
  return nic.rate_gbps;
}

// NVIDIA's driver refuses it on GeForce cards of Ada and Blackwell (RTX 40 and 50; nccl#1309).
bool has_no_peer_access(const Gpu& gpu) {
  const auto model = gpu.model.value_or("");
  if (model.find("GeForce") == std::string::npos) return false;
  const auto at = model.find("RTX ");
  return at != std::string::npos && (model.compare(at + 4, 2, "40") == 0 || model.compare(at + 4, 2, "50") == 0);
}

Fact<double> c2c_gbs(const Machine& machine, std::uint32_t gpu) {
  Fact<double> sum;
  for (const auto& link : machine.links) {
    const NodeRef self{NodeKind::gpu, gpu};
    if (link.kind != LinkKind::c2c || (link.a != self && link.b != self) || !link.gbs_per_link) continue;
    const auto count = link.active ? *link.active : link.count.value_or(1);
    sum.set(sum.value_or(0) + *link.gbs_per_link * count, link.gbs_per_link.source);
  }
  return sum;
}

bool is_virtual(const Machine& machine) {
  return machine.virtual_machine && *machine.virtual_machine != "none";
}

Fact<double> believed_gbs(const Machine& machine, const PciDevice& device) {
  if (is_virtual(machine) && claims_least(device)) return {};
  // GB10's GPU is a part of the chip, and its function's 2.5 GT/s x1 is no link.
  const bool least = device.link.speed_gts.value_or(0) == 2.5 && device.link.width.value_or(0) == 1;
  if (least && device.device_name && device.device_name->find("GB10") != std::string::npos) return {};
  return current_gbs(device.link);
}

Fact<double> nic_capacity_gbps(const Machine& machine, const Nic& nic) {
  if (nic.bond) {
    const auto all = bond_capacity_gbps(machine, machine.bonds[nic.bond.index]);
    if (all) return all;
  }
  if (nic.rdma) {
    Fact<double> sum;
    for (const auto* port : carrying_ports(machine.rdma[nic.rdma.index])) {
      if (!port->rate_gbps) return nic_one_flow_gbps(machine, nic);
      sum.set(sum.value_or(0) + *port->rate_gbps, port->rate_gbps.source);
    }
    // A bond without recorded legs: the port's rate is one leg's.
    if (sum) return sum;
  }
  return nic_one_flow_gbps(machine, nic);
}

}  // namespace fairway::topology
