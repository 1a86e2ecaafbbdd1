#include <algorithm>

#include <fmt/format.h>

#include "predict/model.h"
#include "topology/edges.h"

// Paths between GPUs, and between a GPU and its CPU.
namespace fairway::predict {

using topology::NodeKind;
using topology::NodeRef;
using topology::PathKind;

void Planner::add_between_gpus(Plan& plan, std::uint32_t a, std::uint32_t b, const Conditions& how) const {
  const NodeRef from{NodeKind::gpu, a};
  const NodeRef to{NodeKind::gpu, b};
  plan.path = path_class(from, to);
  add_latency(plan, plan.path);
  if (plan.path.kind == PathKind::nvlink || plan.path.kind == PathKind::xgmi) {
    const auto constant = plan.path.kind == PathKind::xgmi           ? ConstantId::xgmi
                          : how.by_kernel                            ? ConstantId::nvlink_sm
                          : nvlink_generation(machine_, a) - 1U < 2U ? ConstantId::nvlink_copy_old
                                                                     : ConstantId::nvlink_copy;
    const auto links = paths_.direct(from, to);
    if (links.size() == 1 && paths_.edges()[links[0].edge].gbs) {
      plan.terms.push_back({of_edge_[links[0].edge] + (links[0].down ? 1U : 0U), constant, Range::exactly(1), {}});
      return;
    }
    if (plan.path.kind == PathKind::nvlink && links.empty() && of_fabric_.contains(from) && of_fabric_.contains(to)) {
      plan.terms.push_back({of_fabric_.at(from), constant, Range::exactly(1), {}});
      plan.terms.push_back({of_fabric_.at(to) + 1, constant, Range::exactly(1), {}});
      return;
    }
    // Only its class is known, or it is listed in parts: links x the rate of one link of its generation.
    const Range link = plan.path.kind == PathKind::xgmi ? Range{50, 64, 76.8} : nvlink_gbs(machine_, a);
    add_ceiling(plan, constant, "the links between the two", link * plan.path.links);
    return;
  }
  if (const auto links = topology::unrecorded_gpu_links(machine_); !links.empty()) {
    plan.notes.push_back(
        fmt::format("{} not recorded: GPUs of this model have it and the source does not say so", links));
    return;
  }
  std::string refusal;
  if (topology::has_no_peer_access(machine_.gpus[a]) || topology::has_no_peer_access(machine_.gpus[b]))
    refusal = "GPUs of this model have no peer access";
  for (const auto& peer : machine_.peers) {
    if (peer.from.index != a || peer.to.index != b || !peer.write.known()) continue;
    refusal =
        *peer.write ? "" : fmt::format("the driver refuses this access ({})", peer.refusal.value_or("no reason given"));
  }
  if (!refusal.empty()) {
    add_staged_gpus(plan, a, b);
    plan.notes.push_back(refusal + ": it goes through host memory");
    return;
  }
  const auto crossing = crossing_class(from, to).kind;
  const bool through_root = crossing == PathKind::phb || crossing == PathKind::node || crossing == PathKind::sys;
  add_tree(plan, from, to, ConstantId::pcie_dma,
           through_root && cuts_packets() ? ConstantId::pcie_64_bytes : ConstantId::pcie_dma);
  // GPUs write with relaxed ordering of their own.
  add_crossing(plan, from, to, Ordering::relaxed);
}

bool Planner::add_c2c(Plan& plan, NodeRef gpu, NodeRef numa, bool out) const {
  for (const auto node : {numa, NodeRef{NodeKind::package, machine_.numa_nodes[numa.index].package.index}}) {
    const auto links = paths_.direct(out ? gpu : node, out ? node : gpu);
    if (links.empty() || !paths_.edges()[links[0].edge].gbs) continue;
    plan.terms.push_back({of_edge_[links[0].edge] + (links[0].down ? 1U : 0U), ConstantId::c2c, Range::exactly(1), {}});
    return true;
  }
  return false;
}

bool Planner::add_memory_by_c2c(Plan& plan, const Endpoint& memory, std::uint32_t nic, bool reads) const {
  const NodeRef device{NodeKind::nic, nic};
  const auto gpu = node_of(memory);
  const auto path = path_class(gpu, device);
  if (path.kind == PathKind::pix || path.kind == PathKind::pxb || !topology::c2c_gbs(machine_, memory.index))
    return false;
  for (std::uint32_t i = 0; i < machine_.numa_nodes.size(); ++i) {
    const NodeRef numa{NodeKind::numa_node, i};
    if (!add_c2c(plan, gpu, numa, reads)) continue;
    add_tree(plan, reads ? numa : device, reads ? device : numa, ConstantId::pcie_dma, ConstantId::pcie_dma);
    add_socket_to_memory(plan, device, numa);
    // A matrix says that the NIC is the other CPU's, and not which node it is at.
    if (path.kind == PathKind::sys && !topology::numa_of(machine_, device).known()) add_unknown_crossing(plan);
    plan.path = path;
    plan.latency_us = plan.latency_us + constants_[ConstantId::latency_host];
    add_latency(plan, path);
    return true;
  }
  return false;
}

void Planner::add_staged_gpus(Plan& plan, std::uint32_t a, std::uint32_t b) const {
  const auto numa = topology::numa_of(machine_, {NodeKind::gpu, a});
  const auto node = numa ? topology::find_numa(machine_, *numa) : topology::Ref<topology::NumaNode>{};
  const Endpoint host{EndpointKind::host_memory, node ? node.index : 0, {}};
  const Endpoint from{EndpointKind::gpu, a, {}};
  const Endpoint to{EndpointKind::gpu, b, {}};
  if (machine_.numa_nodes.empty()) {
    add_tree(plan, node_of(from), node_of(to), ConstantId::pcie_copy_old, ConstantId::pcie_copy_old);
  } else {
    Plan half;
    add_host_copy(half, from, host);
    add_host_copy(half, host, to);
    half.latency_us = {};
    plan.add(half);
  }
  // The slower of the two GPUs' links bounds both stages.
  Range slowest = Range::exactly(kUnbounded);
  for (const auto gpu : {node_of(from), node_of(to)}) {
    const auto pci = topology::pci_of(machine_, gpu);
    const auto link = pci ? topology::believed_gbs(machine_, machine_.pci[pci.index]) : topology::Fact<double>{};
    if (!link) continue;
    const auto& share = constants_[*link > 40 ? ConstantId::pcie_copy : ConstantId::pcie_copy_old];
    for (const auto level : kLevels) slowest.set(level, std::min(slowest.at(level), *link * share.at(level)));
  }
  add_stage(plan, slowest);
}

void Planner::add_host_copy(Plan& plan, const Endpoint& from, const Endpoint& to) const {
  const bool out = from.kind == EndpointKind::gpu;
  const auto gpu = node_of(out ? from : to);
  const auto numa = node_of(out ? to : from);
  plan.latency_us = plan.latency_us + constants_[ConstantId::latency_host];
  plan.path = to_host(gpu, numa);
  if (add_c2c(plan, gpu, numa, out)) return;
  const auto place = of_assumed_.find(gpu);
  double raw = 0;
  if (const auto steps = paths_.tree(gpu, numa); steps && !steps->empty()) {
    raw = resources_[of_edge_[steps->front().edge]].gbs.expected;
  } else if (place != of_assumed_.end()) {
    raw = resources_[place->second].gbs.expected;
  }
  const auto constant = raw > 40 ? ConstantId::pcie_copy : ConstantId::pcie_copy_old;
  add_tree(plan, node_of(from), node_of(to), constant, constant);
  add_socket_to_memory(plan, gpu, numa);
  add_memory(plan, numa, ConstantId::memory_copy);
}

}  // namespace fairway::predict
