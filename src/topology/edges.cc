#include "topology/edges.h"

#include <algorithm>
#include <map>

#include "topology/catalog.h"
#include "topology/devices.h"
#include "topology/machine.h"
#include "topology/pci.h"
#include "topology/text.h"

// The links of a machine: their rates, the edges that they make, and which of them are in doubt or missing.
namespace fairway::topology {

double pcie_gbs(double speed_gts, std::uint32_t width) {
  const double coding = speed_gts <= 5.0 ? 8.0 / 10.0 : 128.0 / 130.0;
  return speed_gts * coding * width / 8.0;
}

namespace {

Fact<double> product(const Fact<double>& speed, const Fact<std::uint32_t>& width) {
  if (!speed || !width || *speed <= 0 || *width == 0) return {};
  return {pcie_gbs(*speed, *width), speed.source};
}

bool is_one_leg_mode(const Bond& bond) {
  const auto mode = bond.mode.value_or("");
  return mode == "active-backup" || mode == "broadcast";
}

}  // namespace

bool claims_least(const PciDevice& device) {
  const auto vendor = device.vendor_id.value_or(0);
  const bool emulated = device.kind != PciKind::endpoint || vendor == kVendorVirtio || vendor == kVendorQemu;
  return emulated && device.link.speed_gts.value_or(0) == 2.5 && device.link.width.value_or(0) == 1;
}

Fact<double> current_gbs(const PcieLink& link) {
  const auto computed = product(link.speed_gts, link.width);
  if (computed) return computed;
  // hwloc writes 0 if it could not read the link.
  return link.gbs.value_or(0) > 0 ? link.gbs : Fact<double>{};
}

Fact<double> max_gbs(const PcieLink& link) {
  return product(link.max_speed_gts, link.max_width);
}

std::vector<const BondLeg*> carrying_legs(const Machine& machine, const Bond& bond) {
  std::vector<const BondLeg*> legs;
  for (const auto& leg : bond.legs) {
    if (leg.up.known() && !*leg.up) continue;
    if (bond.active_aggregator && leg.aggregator && *leg.aggregator != *bond.active_aggregator) continue;
    legs.push_back(&leg);
  }
  if (!is_one_leg_mode(bond) || legs.size() < 2) return legs;
  // Of active-backup the active leg counts, not the first that is up.
  const auto active = std::ranges::find_if(legs, [&](const BondLeg* leg) {
    return leg->interface.index < machine.interfaces.size() &&
           machine.interfaces[leg->interface.index].name == bond.active_leg.value_or("");
  });
  return {active == legs.end() ? legs.front() : *active};
}

Fact<double> bond_capacity_gbps(const Machine& machine, const Bond& bond) {
  const auto legs = carrying_legs(machine, bond);
  Fact<double> sum;
  for (const auto* leg : legs) {
    if (!leg->speed_gbps) return {};
    sum.set(sum.value_or(0) + *leg->speed_gbps, leg->speed_gbps.source);
  }
  return sum;
}

Fact<double> bond_one_flow_gbps(const Machine& machine, const Bond& bond) {
  if (bond.mode.value_or("") == "balance-rr") return bond_capacity_gbps(machine, bond);
  Fact<double> slowest;
  for (const auto* leg : carrying_legs(machine, bond)) {
    if (!leg->speed_gbps) return {};
    if (!slowest || *leg->speed_gbps < *slowest) slowest = leg->speed_gbps;
  }
  return slowest;
}

std::optional<std::uint32_t> roce_mtu(std::uint32_t interface_mtu) {
  for (const std::uint32_t mtu : {4096U, 2048U, 1024U, 512U, 256U}) {
    if (interface_mtu >= mtu + 96) return mtu;
  }
  return {};
}

std::optional<PortRate> parse_port_rate(std::string_view input) {
  const auto parts = text::words(input);
  if (parts.size() < 2 || !text::starts_with_nocase(parts[1], "Gb/s")) return {};
  const auto gbps = text::to_double(parts[0]);
  if (!gbps || *gbps < 0 || *gbps > 1e5) return {};
  PortRate rate;
  rate.gbps = *gbps;
  const auto open = input.find('(');
  const auto close = input.find(')', open == input.npos ? 0 : open);
  if (open != input.npos && close != input.npos) {
    const auto inside = text::words(input.substr(open + 1, close - open - 1));
    if (!inside.empty() && inside[0].size() > 1 && (inside[0].back() == 'X' || inside[0].back() == 'x')) {
      rate.lanes = text::to_u32(inside[0].substr(0, inside[0].size() - 1)).value_or(0);
    }
    if (inside.size() > 1) rate.speed_name = text::quote(inside[1], 16);
  }
  return rate;
}

namespace {

class EdgeBuilder {
 public:
  explicit EdgeBuilder(const Machine& machine) : machine_(machine) { name_devices(); }

  std::vector<Edge> build() {
    add_host();
    add_pci();
    add_links();
    add_ports();
    return std::move(edges_);
  }

 private:
  // The GPU, NVSwitch or NICs that a PCI function is.
  void name_devices() {
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) claim(machine_.gpus[i].pci, {NodeKind::gpu, i});
    for (std::uint32_t i = 0; i < machine_.nv_switches.size(); ++i) {
      claim(machine_.nv_switches[i].pci, {NodeKind::nv_switch, i});
    }
    for (std::uint32_t i = 0; i < machine_.nics.size(); ++i) {
      for (const auto function : machine_.nics[i].functions) claim(function, {NodeKind::nic, i});
    }
  }
  void claim(Ref<PciDevice> pci, NodeRef node) {
    if (pci) owners_[pci.index].push_back(node);
  }

  Edge& add(EdgeKind kind, NodeRef a, NodeRef b) {
    auto& edge = edges_.emplace_back();
    edge.kind = kind;
    edge.a = a;
    edge.b = b;
    edge.physical = next_physical_++;
    return edge;
  }

  void add_host() {
    for (std::uint32_t i = 0; i < machine_.host_bridges.size(); ++i) {
      const auto& numa = machine_.host_bridges[i].numa_node;
      const auto node = numa ? find_numa(machine_, *numa) : Ref<NumaNode>{};
      if (node) add(EdgeKind::memory, {NodeKind::numa_node, node.index}, {NodeKind::host_bridge, i});
    }
    for (std::uint32_t i = 0; i < machine_.numa_nodes.size(); ++i) {
      const auto package = machine_.numa_nodes[i].package;
      if (package) add(EdgeKind::memory, {NodeKind::package, package.index}, {NodeKind::numa_node, i});
    }
    for (const auto& link : machine_.socket_links) {
      auto& edge = add(EdgeKind::socket, {NodeKind::package, link.a.index}, {NodeKind::package, link.b.index});
      edge.count = link.links.value_or(1);
      if (link.gbs_per_link) edge.gbs = {*link.gbs_per_link * edge.count, link.gbs_per_link.source};
      edge.max_gbs = edge.gbs;
    }
    // Sockets without a recorded link are connected at an unknown rate.
    if (machine_.socket_links.empty()) {
      for (std::uint32_t a = 0; a < machine_.packages.size(); ++a) {
        for (std::uint32_t b = a + 1; b < machine_.packages.size(); ++b) {
          add(EdgeKind::socket, {NodeKind::package, a}, {NodeKind::package, b});
        }
      }
    }
  }

  void add_pci() {
    // Functions of one card below one bridge share one physical link.
    std::map<std::pair<std::uint32_t, BusId>, std::uint32_t> cards;
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      const auto& device = machine_.pci[i];
      if (!device.parent && !device.host_bridge) continue;
      const auto above = device.parent ? NodeRef{NodeKind::pci, device.parent.index}
                                       : NodeRef{NodeKind::host_bridge, device.host_bridge.index};
      const bool port = device.kind == PciKind::root_port || device.kind == PciKind::switch_downstream;
      auto card = device.bus_id;
      card.function = 0;
      const auto [place, fresh] = cards.try_emplace({device.parent.index, card}, next_physical_);
      if (fresh) ++next_physical_;
      const auto owners = owners_.find(i);
      const auto below = owners == owners_.end() ? std::vector<NodeRef>{{NodeKind::pci, i}} : owners->second;
      for (const auto node : below) {
        auto& edge = add(port ? EdgeKind::internal : EdgeKind::pcie, above, node);
        if (port) continue;
        edge.physical = place->second;
        edge.gbs = believed_gbs(machine_, device);
        if (edge.gbs || !current_gbs(device.link)) edge.max_gbs = max_gbs(device.link);
        if (!device.parent) continue;
        // Both ends describe the link: either may fill in for the other, and the smaller maximum counts.
        const auto& bridge = machine_.pci[device.parent.index];
        if (bridge.kind == PciKind::pci_switch) continue;
        if (is_virtual(machine_) && claims_least(bridge)) continue;
        if (!edge.gbs) edge.gbs = current_gbs(bridge.link);
        const auto other = max_gbs(bridge.link);
        if (other && (!edge.max_gbs || *other < *edge.max_gbs)) edge.max_gbs = other;
      }
    }
  }

  void add_links() {
    for (const auto& link : machine_.links) {
      const auto kind = link.kind == LinkKind::nvlink ? EdgeKind::nvlink
                        : link.kind == LinkKind::xgmi ? EdgeKind::xgmi
                                                      : EdgeKind::c2c;
      auto& edge = add(kind, link.a, link.b);
      const auto& up = link.active ? link.active : link.count;
      edge.count = up.value_or(1);
      if (link.gbs_per_link && up) edge.gbs = {*link.gbs_per_link * *up, link.gbs_per_link.source};
      if (link.gbs_per_link && link.count) {
        edge.max_gbs = {*link.gbs_per_link * *link.count, link.gbs_per_link.source};
      }
    }
  }

  void add_ports() {
    for (std::uint32_t i = 0; i < machine_.nics.size(); ++i) {
      const auto& nic = machine_.nics[i];
      auto& edge = add(EdgeKind::port, {NodeKind::nic, i}, {});
      const auto gbps = nic_capacity_gbps(machine_, nic);
      if (gbps) edge.gbs = {*gbps / 8.0, gbps.source};
      edge.max_gbs = edge.gbs;
      if (nic.bond) {
        edge.count = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(machine_.bonds[nic.bond.index].legs.size()));
      }
    }
  }

  const Machine& machine_;
  std::map<std::uint32_t, std::vector<NodeRef>> owners_;
  std::vector<Edge> edges_;
  std::uint32_t next_physical_ = 0;
};

}  // namespace

std::vector<Edge> edges(const Machine& machine) {
  return EdgeBuilder(machine).build();
}

namespace {

bool is_pci_bridge(const Machine& machine, NodeRef node) {
  return node.kind == NodeKind::pci && machine.pci[node.index].kind != PciKind::endpoint;
}

bool is_written_by_people(Source source) {
  return source == Source::nccl_xml || source == Source::rccl_xml || source == Source::hwloc_xml;
}

}  // namespace

std::vector<bool> doubtful_edges(const Machine& machine, const std::vector<Edge>& edges) {
  // The fastest link of an end device below each bridge.
  std::map<NodeRef, double> fastest;
  for (const auto& edge : edges) {
    if (edge.kind != EdgeKind::pcie || !edge.gbs || is_pci_bridge(machine, edge.b)) continue;
    if (edge.b.kind != NodeKind::gpu && edge.b.kind != NodeKind::nic) continue;
    for (auto above = pci_of(machine, edge.b); above; above = machine.pci[above.index].parent) {
      auto& best = fastest[{NodeKind::pci, above.index}];
      best = std::max(best, *edge.gbs);
    }
  }
  const bool guest = is_virtual(machine);
  std::vector<bool> doubtful(edges.size(), false);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto& edge = edges[i];
    if (edge.kind != EdgeKind::pcie || !is_pci_bridge(machine, edge.b)) continue;
    if (!edge.gbs) {
      doubtful[i] = guest && claims_least(machine.pci[edge.b.index]);
      continue;
    }
    const bool first_generation = machine.pci[edge.b.index].link.speed_gts.value_or(8) <= 5;
    const auto below = fastest.find(edge.b);
    doubtful[i] = below != fastest.end() && *edge.gbs < 0.5 * below->second &&
                  (guest || is_written_by_people(edge.gbs.source) || first_generation);
  }
  return doubtful;
}

bool is_idle_reading(const Machine& machine, const Edge& edge) {
  if (edge.b.kind != NodeKind::gpu || edge.kind != EdgeKind::pcie || !edge.gbs) return false;
  const auto pci = pci_of(machine, edge.b);
  if (!pci) return false;
  const auto& link = machine.pci[pci.index].link;
  constexpr double kSlowest = 5;  // GT/s
  if (edge.max_gbs)
    return *edge.max_gbs > *edge.gbs * 1.01 && link.speed_gts.value_or(99) <= kSlowest && link.width == link.max_width;
  const auto& model = machine.gpus[edge.b.index].model;
  const auto* generation = model ? find_gpu_generation(*model) : nullptr;
  return generation != nullptr && pcie_gbs(generation->pcie_gts, 16) > 4 * *edge.gbs;
}

namespace {

// If only the architecture is known: those of servers with NVLink.
std::string_view by_architecture(std::string_view architecture) {
  constexpr std::string_view kNvidia[] = {"sm_60", "sm_70", "sm_80", "sm_90", "sm_100", "sm_103"};
  constexpr std::string_view kAmd[] = {"gfx90a", "gfx942", "gfx950"};
  if (std::ranges::find(kNvidia, architecture) != std::end(kNvidia)) return "NVLink";
  return std::ranges::any_of(kAmd, [&](auto name) { return architecture.starts_with(name); }) ? "xGMI"
                                                                                              : std::string_view{};
}

std::string_view links_of(const Gpu& gpu) {
  if (!gpu.model) return by_architecture(gpu.architecture.value_or(""));
  // PCIe cards may have NVLink bridges; if none is recorded there is none.
  if (gpu.model->find("PCIe") != std::string::npos || gpu.model->find("PCIE") != std::string::npos) return {};
  const auto* generation = find_gpu_generation(*gpu.model);
  if (generation == nullptr) return by_architecture(gpu.architecture.value_or(""));
  // A30 and A40 are cards too.
  if (generation->nvlinks > 4) return "NVLink";
  return generation->name.starts_with("MI2") || generation->name.starts_with("MI3") ? "xGMI" : std::string_view{};
}

}  // namespace

std::string_view unrecorded_gpu_links(const Machine& machine) {
  if (machine.gpus.size() < 2 || has_gpu_links(machine) || !machine.nv_switches.empty()) return {};
  // A captured topo -m has a cell for each pair, and NVML reports links if it was asked.
  if (!machine.matrix.empty() || machine.gpu_driver.source == Source::nvml) return {};
  for (const auto& gpu : machine.gpus) {
    if (!gpu.nvlinks.empty()) return {};
  }
  std::string_view common;
  for (const auto& gpu : machine.gpus) {
    const auto links = links_of(gpu);
    if (links.empty()) return {};
    common = links;
  }
  return common;
}

}  // namespace fairway::topology
