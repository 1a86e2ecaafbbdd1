#include "render/outline_devices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "render/phrases.h"
#include "topology/catalog.h"
#include "topology/edges.h"

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
  has_rdma_ = std::ranges::any_of(machine.rdma,
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
  const bool leg_down = std::ranges::any_of(box.ports, [](const BondPort& p) { return p.up && !*p.up; });
  if (leg_down && box.health == Health::good) box.health = Health::reduced;
  const bool is_software = nic.rdma && machine_.rdma[nic.rdma.index].software.value_or(false);
  box.muted = is_software || (has_rdma_ && !nic.rdma);
  // Its place and link are those of the NIC below it.
  if (is_software) box.place = "software RDMA";
}

namespace {

using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;
using topology::PathKind;

bool is_placed(const Machine& machine, NodeRef node) {
  const auto pci = topology::pci_of(machine, node);
  return pci && machine.pci[pci.index].host_bridge;
}

class Placer {
 public:
  Placer(const Machine& machine, const DeviceBoxes& devices, Outline& outline)
      : machine_(machine), devices_(devices), outline_(outline) {}

  void place() {
    std::vector<NodeRef> nodes;
    const auto consider = [&](NodeKind kind, std::size_t n) {
      for (std::uint32_t i = 0; i < n; ++i) {
        const NodeRef node{kind, i};
        if (is_placed(machine_, node) || join_neighbour(node)) continue;
        nodes.push_back(node);
      }
    };
    consider(NodeKind::nic, machine_.nics.size());
    consider(NodeKind::gpu, machine_.gpus.size());
    std::map<std::optional<std::uint32_t>, std::vector<NodeRef>> by_numa;
    for (const NodeRef node : nodes) by_numa[numa_near(node)].push_back(node);
    for (const auto& [numa, members] : by_numa) {
      std::vector<Box> boxes = nest(members, 0);
      Box& home = numa ? numa_box(*numa) : unknown_box();
      for (Box& box : boxes) home.children.push_back(std::move(box));
    }
  }

 private:
  [[nodiscard]] PathKind kind(NodeRef a, NodeRef b) const {
    const auto path = topology::path_class(machine_, a, b);
    return path ? path->kind : PathKind::unknown;
  }

  [[nodiscard]] Box device(NodeRef node) const {
    Box box = devices_.box(node);
    box.inferred = true;
    return box;
  }

  // Beside a placed device that shares a switch with it.
  bool join_neighbour(NodeRef node) {
    bool joined = false;
    const auto visit = [&](const auto& self, Box& parent) -> void {
      for (std::size_t i = 0; i < parent.children.size() && !joined; ++i) {
        const NodeRef other = parent.children[i].node;
        const bool is_device = other.kind == NodeKind::gpu || other.kind == NodeKind::nic;
        if (is_device && !parent.children[i].inferred && kind(node, other) == PathKind::pix) {
          parent.children.push_back(device(node));
          joined = true;
          return;
        }
        self(self, parent.children[i]);
      }
    };
    for (Box& root : outline_.roots) visit(visit, root);
    return joined;
  }

  // Its NUMA node: known, or the one whose CPUs are its own.
  [[nodiscard]] std::optional<std::uint32_t> numa_near(NodeRef node) const {
    const auto known = topology::numa_of(machine_, node);
    if (known) return *known;
    if (node.kind == NodeKind::gpu && machine_.gpus[node.index].cpus) {
      for (const topology::NumaNode& numa : machine_.numa_nodes) {
        if (numa.cpus && numa.cpus->intersects(*machine_.gpus[node.index].cpus)) return numa.os_index;
      }
    }
    // By a neighbour in the same node.
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      const PathKind near = kind(node, {NodeKind::gpu, i});
      const auto numa = topology::numa_of(machine_, {NodeKind::gpu, i});
      if (near >= PathKind::pix && near <= PathKind::node && numa) return *numa;
    }
    return {};
  }

  // Groups by nearer and nearer classes: level 0 PHB, 1 PXB, 2 PIX, 3 the devices.
  std::vector<Box> nest(const std::vector<NodeRef>& members, int level) {
    static constexpr PathKind kFurthest[] = {PathKind::phb, PathKind::pxb, PathKind::pix};
    std::vector<Box> boxes;
    if (level == 3) {
      for (const NodeRef node : members) boxes.push_back(device(node));
      return boxes;
    }
    std::vector<std::size_t> group(members.size());
    std::iota(group.begin(), group.end(), std::size_t{0});
    for (std::size_t a = 0; a < members.size(); ++a) {
      for (std::size_t b = a + 1; b < members.size(); ++b) {
        const PathKind path = kind(members[a], members[b]);
        if (path < PathKind::pix || path > kFurthest[level] || group[a] == group[b]) continue;
        const std::size_t old = group[b];
        std::ranges::replace(group, old, group[a]);
      }
    }
    std::vector<std::size_t> done;
    for (std::size_t a = 0; a < members.size(); ++a) {
      if (std::ranges::find(done, group[a]) != done.end()) continue;
      done.push_back(group[a]);
      std::vector<NodeRef> together;
      for (std::size_t b = 0; b < members.size(); ++b) {
        if (group[b] == group[a]) together.push_back(members[b]);
      }
      std::vector<Box> inner = nest(together, level + 1);
      const bool needs_box = together.size() > 1 && !(inner.size() == 1 && !inner[0].children.empty());
      if (!needs_box) {
        for (Box& box : inner) boxes.push_back(std::move(box));
        continue;
      }
      static constexpr const char* kNames[] = {"Host bridge (PHB)", "PCIe switches (PXB)", "PCIe switch (PIX)"};
      Box box = make_box(level == 0 ? BoxKind::host_bridge : BoxKind::pci_switch, {}, kNames[level]);
      box.inferred = true;
      box.children = std::move(inner);
      boxes.push_back(std::move(box));
    }
    return boxes;
  }

  Box& numa_box(std::uint32_t os_index) {
    Box* found = nullptr;
    const auto visit = [&](const auto& self, std::vector<Box>& boxes) -> void {
      for (Box& box : boxes) {
        if (box.node.kind == NodeKind::numa_node && machine_.numa_nodes[box.node.index].os_index == os_index)
          found = &box;
        self(self, box.children);
      }
    };
    visit(visit, outline_.roots);
    if (found != nullptr) return *found;
    outline_.roots.push_back(make_box(BoxKind::numa, {}, fmt::format("NUMA node {}", os_index)));
    return outline_.roots.back();
  }

  Box& unknown_box() {
    const bool one_place = outline_.roots.size() == 1 &&
                           (outline_.roots[0].children.empty() || outline_.roots[0].children[0].kind != BoxKind::numa);
    if (one_place) return outline_.roots[0];
    outline_.roots.push_back(make_box(BoxKind::unplaced, {}, "Place unknown"));
    return outline_.roots.back();
  }

  const Machine& machine_;
  const DeviceBoxes& devices_;
  Outline& outline_;
};

}  // namespace

void place_rest(const Machine& machine, const DeviceBoxes& devices, Outline& outline) {
  Placer(machine, devices, outline).place();
}

}  // namespace fairway::render
