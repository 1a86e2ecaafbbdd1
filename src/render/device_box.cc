#include "render/device_box.h"

#include <algorithm>

#include <fmt/format.h>

#include "render/phrases.h"
#include "topology/catalog.h"
#include "topology/doubt.h"

namespace fairway::render {

using topology::NodeKind;
using topology::NodeRef;

DeviceBoxes::DeviceBoxes(const topology::Machine& machine) : machine_(machine), owners_(machine.pci.size()) {
  const auto claim = [this](topology::Ref<topology::PciDevice> pci, NodeRef node) {
    if (pci) owners_[pci.index].push_back(node);
  };
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) claim(machine.gpus[i].pci, {NodeKind::gpu, i});
  for (std::uint32_t i = 0; i < machine.nv_switches.size(); ++i) {
    claim(machine.nv_switches[i].pci, {NodeKind::nv_switch, i});
  }
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    for (const auto function : machine.nics[i].functions) claim(function, {NodeKind::nic, i});
  }
  const auto edges = topology::edges(machine);
  const auto doubtful = topology::doubtful_edges(machine, edges);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].kind != topology::EdgeKind::pcie) continue;
    links_.emplace(edges[i].b, edges[i]);
    if (doubtful[i] || topology::is_idle_reading(machine, edges[i])) doubted_.insert(edges[i].b);
  }
  has_rdma_ = std::any_of(machine.rdma.begin(), machine.rdma.end(),
                          [](const topology::RdmaDevice& device) { return !device.software.value_or(false); });
}

Box DeviceBoxes::box(NodeRef node) const {
  Box box;
  box.node = node;
  box.name = topology::node_name(machine_, node);
  const auto pci = topology::pci_of(machine_, node);
  if (pci) {
    box.place = machine_.pci[pci.index].bus_id.to_string();
    box.link_words = pcie_words(machine_.pci[pci.index].link);
  }
  const auto link = links_.find(node);
  if (link != links_.end()) {
    box.gbs = link->second.gbs;
    box.max_gbs = link->second.max_gbs;
    constexpr double kRounding = 0.99;
    box.doubted = doubted_.contains(node);
    if (!box.doubted && box.gbs && box.max_gbs && *box.gbs < *box.max_gbs * kRounding) box.health = Health::reduced;
  }
  switch (node.kind) {
    case NodeKind::gpu:
      box.kind = BoxKind::gpu;
      fill_gpu(box, machine_.gpus[node.index]);
      break;
    case NodeKind::nic:
      box.kind = BoxKind::nic;
      fill_nic(box, machine_.nics[node.index]);
      break;
    case NodeKind::nv_switch: box.kind = BoxKind::nv_switch; break;
    default:
      box.kind = BoxKind::pci_switch;
      box.name = "PCIe switch";
      break;
  }
  return box;
}

void DeviceBoxes::fill_gpu(Box& box, const topology::Gpu& gpu) const {
  if (gpu.model) box.model = short_gpu_model(*gpu.model);
  if (box.model.empty() && gpu.architecture) box.model = *gpu.architecture;
  // Names such as "H100 80GB HBM3" already contain it.
  if (gpu.memory_bytes && box.model.find("GB") == std::string::npos)
    box.model += fmt::format("{}{}", box.model.empty() ? "" : ", ", gibibytes(*gpu.memory_bytes));
}

void DeviceBoxes::fill_nic(Box& box, const topology::Nic& nic) const {
  if (!nic.name.empty()) box.name = nic.name;
  const topology::Fact<double> whole = topology::nic_capacity_gbps(machine_, nic);
  if (nic.bond) {
    const topology::Bond& bond = machine_.bonds[nic.bond.index];
    for (const topology::BondLeg& leg : bond.legs) {
      BondPort port{.name = leg.interface ? machine_.interfaces[leg.interface.index].name : "?",
                    .up = leg.up,
                    .gbps = leg.speed_gbps};
      box.ports.push_back(std::move(port));
    }
  }
  const topology::Fact<double> one = topology::nic_one_flow_gbps(machine_, nic);
  if (box.ports.size() > 1 && one) {
    box.model = fmt::format("{}x{}G", box.ports.size(), rate(*one));
  } else if (whole) {
    box.model = fmt::format("{}G", rate(*whole));
  }
  // Cloud providers' topology files have neither ports nor names, but the id identifies the generation.
  if (const auto* generation = topology::find_nic_generation(machine_, nic);
      generation != nullptr && generation->name.starts_with("EFA")) {
    box.model = fmt::format("EFA {}", box.model.empty() ? fmt::format("{}G", rate(generation->port_gbps)) : box.model);
  }
  if (nic.functions.size() > 1) {
    const topology::BusId& last = machine_.pci[nic.functions.back().index].bus_id;
    const topology::BusId& first = machine_.pci[nic.functions.front().index].bus_id;
    if (last.same_slot(first)) box.place += fmt::format("-{}", last.function);
  }
  // A port that is down carries nothing, whatever its PCIe link.
  bool has_state = false;
  bool is_up = false;
  if (nic.rdma) {
    for (const topology::RdmaPort& port : machine_.rdma[nic.rdma.index].ports) {
      has_state = has_state || port.state.known();
      is_up = is_up || port.state.value_or("") == "ACTIVE";
    }
  } else {
    for (const auto interface : nic.interfaces) {
      const auto& state = machine_.interfaces[interface.index].state;
      has_state = has_state || state.known();
      is_up = is_up || (state && *state != "down");
    }
  }
  if (has_state && !is_up) box.health = Health::down;
  const bool leg_down =
      std::any_of(box.ports.begin(), box.ports.end(), [](const BondPort& p) { return p.up && !*p.up; });
  if (leg_down && box.health == Health::good) box.health = Health::reduced;
  const bool is_software = nic.rdma && machine_.rdma[nic.rdma.index].software.value_or(false);
  box.muted = is_software || (has_rdma_ && !nic.rdma);
  // Its place and link are those of the NIC below it.
  if (is_software) box.place = "software RDMA";
}

}  // namespace fairway::render
