#include <fmt/format.h>

#include "render/page.h"
#include "render/phrases.h"

namespace fairway::render {
namespace {

using topology::Fact;
using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;

class Rows {
 public:
  explicit Rows(Details& details) : details_(details) {}

  void add(std::string label, std::string value) {
    if (!value.empty()) details_.rows.emplace_back(std::move(label), std::move(value));
  }
  void add(std::string label, const Fact<std::string>& value) { add(std::move(label), value.value_or("")); }
  void add(std::string label, const Fact<bool>& value) {
    if (value) add(std::move(label), std::string(*value ? "yes" : "no"));
  }
  void add(std::string label, const Fact<std::uint32_t>& value) {
    if (value) add(std::move(label), std::to_string(*value));
  }
  void bytes(std::string label, const Fact<std::uint64_t>& value) {
    if (value) add(std::move(label), gibibytes(*value));
  }

 private:
  Details& details_;
};

void add_pci(const Machine& machine, topology::Ref<topology::PciDevice> ref, Rows& rows) {
  if (!ref) return;
  const topology::PciDevice& device = machine.pci[ref.index];
  rows.add("Bus id", device.bus_id.to_string());
  const auto now = topology::current_gbs(device.link);
  const auto best = topology::max_gbs(device.link);
  std::string link = pcie_words(device.link);
  if (now) link += fmt::format("{}{} GB/s per direction", link.empty() ? "" : ", ", rate(now));
  if (now && best && *now < *best * 0.99) link += fmt::format(" (of {} at its best)", rate(best));
  rows.add("PCIe link", link);
  rows.add("Driver", device.driver);
}

void add_gpu(const Machine& machine, const topology::Gpu& gpu, Rows& rows) {
  rows.add("Model", gpu.model);
  rows.add("Architecture", gpu.architecture);
  rows.bytes("Memory", gpu.memory_bytes);
  rows.bytes("BAR1", gpu.bar1_bytes);
  add_pci(machine, gpu.pci, rows);
  rows.add("GPUDirect RDMA", gpu.gpudirect_rdma);
  if (gpu.cpus) rows.add("CPUs near it", gpu.cpus->to_list());
  std::size_t up = 0;
  bool known = false;
  for (const topology::NvLinkPort& port : gpu.nvlinks) {
    known = known || port.active.known();
    up += port.active.value_or(false) ? 1 : 0;
  }
  if (known) rows.add("NVLinks", fmt::format("{} of {} up", up, gpu.nvlinks.size()));
}

void add_nic(const Machine& machine, const topology::Nic& nic, Rows& rows) {
  rows.add("Model", nic.model);
  const auto whole = topology::nic_capacity_gbps(machine, nic);
  const auto one = topology::nic_one_flow_gbps(machine, nic);
  if (whole) rows.add("Rate", fmt::format("{} = {} GB/s per direction", gigabits(*whole), rate(*whole / 8)));
  if (whole && one && *one < *whole) rows.add("One flow", fmt::format("{} = {} GB/s", gigabits(*one), rate(*one / 8)));
  if (!nic.functions.empty()) add_pci(machine, nic.functions[0], rows);
  if (nic.bond) {
    const topology::Bond& bond = machine.bonds[nic.bond.index];
    rows.add("Bond", fmt::format("{}{}{}", bond.mode.value_or("mode unknown"), bond.hash_policy ? ", " : "",
                                 bond.hash_policy.value_or("")));
    for (const topology::BondLeg& leg : bond.legs) {
      const std::string name = leg.interface ? machine.interfaces[leg.interface.index].name : "?";
      rows.add("Leg " + name, fmt::format("{}{}", leg.speed_gbps ? gigabits(*leg.speed_gbps) : "speed unknown",
                                          !leg.up   ? ""
                                          : *leg.up ? ", up"
                                                    : ", down"));
    }
  }
  if (nic.rdma) {
    const topology::RdmaDevice& device = machine.rdma[nic.rdma.index];
    rows.add("RDMA device", device.name);
    rows.add("Firmware", device.firmware);
    for (const topology::RdmaPort& port : device.ports) {
      const std::string label = device.ports.size() > 1 ? fmt::format("Port {}", port.number) : "Port";
      std::string text = port.link_layer.value_or("");
      for (const auto& part : {port.state, port.physical_state}) {
        if (part) text += (text.empty() ? "" : ", ") + *part;
      }
      rows.add(label, text);
      rows.add("MTU", port.active_mtu);
    }
  } else {
    rows.add("RDMA", std::string("no"));
  }
  rows.add("GPUDirect RDMA", nic.gpudirect_rdma);
  std::vector<std::string> names;
  for (const auto interface : nic.interfaces) names.push_back(machine.interfaces[interface.index].name);
  if (!nic.bond) rows.add("Interface", fold_names(names));
  rows.add("Cabled to", nic.net_switch);
}

}  // namespace

Details details(const Machine& machine, NodeRef node) {
  Details out;
  out.title = topology::node_name(machine, node);
  Rows rows(out);
  switch (node.kind) {
    case NodeKind::gpu: add_gpu(machine, machine.gpus[node.index], rows); break;
    case NodeKind::nic: add_nic(machine, machine.nics[node.index], rows); break;
    case NodeKind::pci: {
      const topology::PciDevice& device = machine.pci[node.index];
      rows.add("Vendor", device.vendor_name);
      rows.add("Device", device.device_name);
      add_pci(machine, topology::Ref<topology::PciDevice>(node.index), rows);
      break;
    }
    case NodeKind::package: {
      const topology::Package& package = machine.packages[node.index];
      rows.add("Model", package.model);
      if (package.cpus) rows.add("CPUs", package.cpus->to_list());
      break;
    }
    case NodeKind::numa_node: {
      const topology::NumaNode& numa = machine.numa_nodes[node.index];
      if (numa.package) rows.add("CPU", machine.packages[numa.package.index].model);
      if (numa.cpus) rows.add("CPUs", numa.cpus->to_list());
      rows.bytes("Memory", numa.memory_bytes);
      std::string distances;
      for (const std::uint32_t distance : numa.distances.value_or({}))
        distances += fmt::format("{}{}", distances.empty() ? "" : " ", distance);
      rows.add("Distances", distances);
      break;
    }
    case NodeKind::host_bridge: {
      const topology::HostBridge& bridge = machine.host_bridges[node.index];
      rows.add("Root bus", fmt::format("{:04x}:{:02x}", bridge.domain, bridge.bus));
      rows.add("NUMA node", bridge.numa_node);
      if (bridge.folded)
        rows.add("Remark", std::string("the source shows one bridge per NUMA node, whatever there is"));
      break;
    }
    case NodeKind::nv_switch: {
      const auto pci = machine.nv_switches[node.index].pci;
      add_pci(machine, pci, rows);
      if (!pci) rows.add("Remark", std::string("concluded from the links; not on this machine's bus"));
      break;
    }
    default: break;
  }
  if (node.kind == NodeKind::gpu || node.kind == NodeKind::nic || node.kind == NodeKind::pci) {
    rows.add("NUMA node", topology::numa_of(machine, node));
  }
  return out;
}

}  // namespace fairway::render
