#include "predict/links.h"

#include <algorithm>

#include <fmt/format.h>

#include "topology/catalog.h"
#include "topology/text.h"

namespace fairway::predict {
namespace {

using topology::EdgeKind;
using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;

// "sm_90" -> 90; 0 if it is not NVIDIA's.
std::uint32_t sm_of(const topology::Gpu& gpu) {
  const auto name = gpu.architecture.value_or("");
  if (!name.starts_with("sm_")) return 0;
  return static_cast<std::uint32_t>(topology::text::leading_unsigned(std::string_view(name).substr(3)).value_or(0));
}

// GT/s per lane of a GPU's link; 0 when neither model nor architecture says it.
double gpu_gts(const topology::Gpu& gpu) {
  if (gpu.model) {
    if (const auto* generation = topology::find_gpu_generation(*gpu.model)) return generation->pcie_gts;
  }
  const auto sm = sm_of(gpu);
  if (sm >= 90) return 32;
  if (sm >= 80) return 16;
  if (sm > 0) return 8;
  const auto architecture = gpu.architecture.value_or("");
  if (architecture == "gfx942" || architecture == "gfx950") return 32;
  if (architecture.starts_with("gfx90")) return 16;
  return 0;
}

// The slowest x16 generation that is fast enough for such a port; GT/s per lane.
double generation_for(double gbps) {
  for (const double gts : {8.0, 16.0, 32.0}) {
    if (topology::pcie_gbs(gts, 16) * 0.8 >= gbps / 8) return gts;
  }
  return 64;
}

}  // namespace

bool is_virtual(const Machine& machine, const Assumptions& assumptions) {
  if (assumptions.virtual_machine) return *assumptions.virtual_machine;
  return topology::is_virtual(machine);
}

Capacity assumed_pcie(const Machine& machine, NodeRef node, const Assumptions& assumptions) {
  if (const auto said = assumptions.link_gbs.find(node); said != assumptions.link_gbs.end()) {
    return {Range::exactly(said->second), "as you said"};
  }
  const auto x16 = [](double gts) { return topology::pcie_gbs(gts, 16); };
  double gts = 0;
  std::string why;
  if (node.kind == NodeKind::gpu) {
    gts = gpu_gts(machine.gpus[node.index]);
    why = "its model's link";
  } else if (node.kind == NodeKind::nic) {
    const auto* generation = topology::find_nic_generation(machine, machine.nics[node.index]);
    if (generation != nullptr) {
      gts = generation->pcie_gts;
      why = fmt::format("{}'s link", generation->name);
    }
    const auto port = port_rate(machine, node.index, assumptions);
    if (port.gbps) {
      const auto needed = generation_for(*port.gbps * port.legs);
      if (needed > gts && generation == nullptr) {
        gts = needed;
        why = "the least that feeds its port";
      }
    }
  }
  if (gts > 0) return {Range::exactly(x16(gts)), fmt::format("{}, x16 assumed", why)};
  // A GPU of unknown model has at least the generation that the NICs beside it need.
  double beside = 16;
  for (std::uint32_t i = 0; node.kind == NodeKind::gpu && i < machine.nics.size(); ++i) {
    const auto port = port_rate(machine, i, assumptions);
    if (port.gbps) beside = std::max(beside, std::min(32.0, generation_for(*port.gbps * port.legs)));
  }
  return {{x16(std::min(beside, 16.0)), x16(beside), x16(32)}, "its generation is unknown: between Gen4 and Gen5"};
}

PortRate port_rate(const Machine& machine, std::uint32_t index, const Assumptions& assumptions) {
  const auto& nic = machine.nics[index];
  PortRate rate;
  const auto one = topology::nic_one_flow_gbps(machine, nic);
  const auto all = topology::nic_capacity_gbps(machine, nic);
  if (one && *one > 0) {
    rate.gbps = *one;
    if (all && nic.bond) rate.legs = std::max(1U, static_cast<std::uint32_t>(*all / *one + 0.5));
  } else if (const auto* generation = topology::find_nic_generation(machine, nic)) {
    rate.gbps = generation->port_gbps;
    rate.assumed = fmt::format("the fastest port of {}", generation->name);
  }
  if (const auto said = assumptions.port_gbps.find(index); said != assumptions.port_gbps.end()) {
    rate.gbps = said->second;
    rate.assumed = "as you said";
  }
  return rate;
}

double payload_share(std::uint32_t mtu, bool infiniband) {
  // RoCE v2: Ethernet 14 + 4, preamble and gap 20, IPv4 20, UDP 8, BTH 12, ICRC 4. InfiniBand: LRH 8, BTH 12, ICRC 4,
  // VCRC 2. The RETH of a message's first packet is small against large messages.
  const double overhead = infiniband ? 26 : 82;
  return mtu / (mtu + overhead);
}

// What InfiniBand's line coding leaves of the rate that the kernel prints, which is the line's: 8b/10b up to QDR,
// 64b/66b of FDR. From EDR on the rate is the data's. (RoCE of 40 Gb/s is named QDR too, and has no such coding.)
double line_coding(std::string_view speed) {
  if (speed == "SDR" || speed == "DDR" || speed == "QDR") return 8.0 / 10;
  if (speed == "FDR" || speed == "FDR10") return 64.0 / 66;
  return 1;
}

WireFacts wire_facts(const Machine& machine, std::uint32_t index, const Conditions& conditions) {
  const auto& nic = machine.nics[index];
  WireFacts facts;
  double coding = 1;
  std::optional<std::uint32_t> mtu = conditions.mtu;
  if (nic.rdma) {
    const auto& ports = machine.rdma[nic.rdma.index].ports;
    const bool any_active =
        std::ranges::any_of(ports, [](const auto& port) { return port.state.value_or("") == "ACTIVE"; });
    for (const auto& port : ports) {
      if (any_active && port.state.value_or("") != "ACTIVE") continue;
      if (port.link_layer) facts.infiniband = *port.link_layer == "InfiniBand";
      if (!mtu && port.active_mtu) mtu = *port.active_mtu;
      if (facts.infiniband) coding = line_coding(port.speed_name.value_or(""));
    }
  }
  if (!mtu && !facts.infiniband) {
    std::vector<topology::Ref<topology::NetInterface>> interfaces = nic.interfaces;
    if (nic.bond) interfaces.insert(interfaces.begin(), machine.bonds[nic.bond.index].interface);
    for (const auto interface : interfaces) {
      if (!interface) continue;
      const auto& bytes = machine.interfaces[interface.index].mtu;
      if (!bytes || mtu) continue;
      mtu = topology::roce_mtu(*bytes);
    }
  }
  facts.mtu_assumed = !mtu;
  facts.mtu = mtu.value_or(4096);
  const double share = coding * payload_share(facts.mtu, facts.infiniband);
  facts.payload = Range::exactly(share);
  if (facts.mtu_assumed && !facts.infiniband) facts.payload.low = payload_share(1024, false);
  return facts;
}

std::uint32_t nvlink_generation(const Machine& machine, std::uint32_t index) {
  const auto& gpu = machine.gpus[index];
  for (const auto& link : machine.links) {
    const NodeRef self{NodeKind::gpu, index};
    if ((link.a == self || link.b == self) && link.generation) return *link.generation;
  }
  if (gpu.model) {
    if (const auto* generation = topology::find_gpu_generation(*gpu.model)) return generation->nvlink;
  }
  const auto sm = sm_of(gpu);
  return sm >= 100 ? 5 : sm >= 90 ? 4 : sm >= 80 ? 3 : sm >= 70 ? 2 : sm >= 60 ? 1 : 0;
}

namespace {

std::uint32_t links_of(const Machine& machine, std::uint32_t gpu) {
  std::uint32_t count = 0;
  for (const auto& link : machine.links) {
    const NodeRef self{NodeKind::gpu, gpu};
    if (link.kind == topology::LinkKind::nvlink && (link.a == self || link.b == self)) count += link.count.value_or(0);
  }
  return count;
}

}  // namespace

Range nvlink_gbs(const Machine& machine, std::uint32_t gpu) {
  switch (nvlink_generation(machine, gpu)) {
    // Of more than 12 links they are NVLink 4 or 5.
    case 0: return {links_of(machine, gpu) > 12 ? 25.0 : 20.0, 25, 50};
    case 1: return Range::exactly(20);
    case 5: return Range::exactly(50);
    default: return Range::exactly(25);
  }
}

bool is_before_ampere(const topology::Gpu& gpu) {
  const auto sm = sm_of(gpu);
  if (sm > 0) return sm < 80;
  if (!gpu.model) return false;
  const auto* generation = topology::find_gpu_generation(*gpu.model);
  return generation != nullptr && generation->pcie_gts <= 8 && gpu.model->find("MI") == std::string::npos;
}

Paths::Paths(const topology::Machine& machine) : edges_(topology::edges(machine)) {
  for (std::uint32_t i = 0; i < edges_.size(); ++i) {
    const auto& edge = edges_[i];
    if (edge.kind != EdgeKind::pcie && edge.kind != EdgeKind::internal && edge.kind != EdgeKind::memory) continue;
    // The functions of a card share one physical link: the first one's.
    above_.try_emplace(edge.b, Above{edge.a, i});
    in_tree_[edge.a] = in_tree_[edge.b] = true;
  }
}

// The nodes above, nearest first, each with the edge that leads to it.
std::vector<Paths::Above> Paths::climb(NodeRef from) const {
  std::vector<Above> chain;
  constexpr std::size_t kMost = topology::kMaxPciDepth + 4;  // host bridge, NUMA node, package; ends a cycle
  for (auto at = above_.find(from); at != above_.end() && chain.size() < kMost; at = above_.find(at->second.node)) {
    chain.push_back(at->second);
  }
  return chain;
}

std::optional<std::vector<Step>> Paths::tree(NodeRef from, NodeRef to) const {
  if (!in_tree_.contains(from) || !in_tree_.contains(to)) return {};
  auto up = climb(from);
  auto down = climb(to);
  const auto node_at = [](NodeRef start, const std::vector<Above>& chain, std::size_t i) {
    return i == 0 ? start : chain[i - 1].node;
  };
  // The nearest node in both chains, including their starts.
  for (std::size_t i = 0; i <= up.size(); ++i) {
    for (std::size_t k = 0; k <= down.size(); ++k) {
      if (node_at(from, up, i) != node_at(to, down, k)) continue;
      up.resize(i);
      down.resize(k);
      std::vector<Step> steps;
      for (const auto& hop : up) steps.push_back({hop.edge, false});
      for (auto hop = down.rbegin(); hop != down.rend(); ++hop) steps.push_back({hop->edge, true});
      return steps;
    }
  }
  std::vector<Step> steps;
  for (const auto& hop : up) steps.push_back({hop.edge, false});
  const auto top = node_at(from, up, up.size());
  const auto other = node_at(to, down, down.size());
  for (std::uint32_t i = 0; i < edges_.size(); ++i) {
    if (edges_[i].kind != EdgeKind::socket) continue;
    if (edges_[i].a == top && edges_[i].b == other) steps.push_back({i, true});
    if (edges_[i].a == other && edges_[i].b == top) steps.push_back({i, false});
  }
  for (auto hop = down.rbegin(); hop != down.rend(); ++hop) steps.push_back({hop->edge, true});
  return steps;
}

std::vector<Step> Paths::direct(NodeRef from, NodeRef to) const {
  std::vector<Step> steps;
  for (std::uint32_t i = 0; i < edges_.size(); ++i) {
    const auto kind = edges_[i].kind;
    if (kind != EdgeKind::nvlink && kind != EdgeKind::xgmi && kind != EdgeKind::c2c) continue;
    if (edges_[i].a == from && edges_[i].b == to) steps.push_back({i, true});
    if (edges_[i].a == to && edges_[i].b == from) steps.push_back({i, false});
  }
  return steps;
}

}  // namespace fairway::predict
