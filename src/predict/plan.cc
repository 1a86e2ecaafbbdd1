#include <algorithm>

#include <fmt/format.h>

#include "predict/model.h"
#include "predict/odds.h"

namespace fairway::predict {

using topology::EdgeKind;
using topology::NodeKind;
using topology::NodeRef;
using topology::PathClass;
using topology::PathKind;

namespace {

bool is_peer_kind(EndpointKind kind) {
  return kind == EndpointKind::gpu || kind == EndpointKind::host_memory;
}

ConstantId latency_of(PathKind kind) {
  switch (kind) {
    case PathKind::self:
    case PathKind::pix: return ConstantId::latency_pix;
    case PathKind::pxb: return ConstantId::latency_pxb;
    case PathKind::phb: return ConstantId::latency_phb;
    case PathKind::nvlink:
    case PathKind::xgmi: return ConstantId::latency_nvlink;
    case PathKind::sys: return ConstantId::latency_sys;
    case PathKind::node:
    case PathKind::unknown: break;
  }
  return ConstantId::latency_node;
}

constexpr Range kOnlyBelow = {1, kUnbounded, kUnbounded};  // a limit at the low end only
constexpr Range kNotAbove = {1, 1, kUnbounded};            // no limit at the high end

}  // namespace

void Plan::add(const Plan& other) {
  terms.insert(terms.end(), other.terms.begin(), other.terms.end());
  latency_us = latency_us + other.latency_us;
  for (const auto& note : other.notes) {
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  }
}

PathClass Planner::path_class(NodeRef a, NodeRef b) const {
  const auto row = matrix_place_.find(a);
  const auto column = matrix_place_.find(b);
  if (row != matrix_place_.end() && column != matrix_place_.end()) return matrix_.at(row->second, column->second);
  return topology::path_class(machine_, a, b).value_or(PathClass{});
}

bool Planner::is_one_socket(NodeRef a, NodeRef b) const {
  const auto numa_a = a.kind == NodeKind::numa_node ? machine_.numa_nodes[a.index].os_index
                                                    : topology::numa_of(machine_, a).value_or(~0U);
  const auto numa_b = b.kind == NodeKind::numa_node ? machine_.numa_nodes[b.index].os_index
                                                    : topology::numa_of(machine_, b).value_or(~0U);
  // There is only one socket.
  if (numa_a == ~0U || numa_b == ~0U) return machine_.packages.size() == 1;
  if (numa_a == numa_b) return true;
  const auto node_a = topology::find_numa(machine_, numa_a);
  const auto node_b = topology::find_numa(machine_, numa_b);
  if (!node_a || !node_b) return false;
  const auto package = machine_.numa_nodes[node_a.index].package;
  return package && package == machine_.numa_nodes[node_b.index].package;
}

PathClass Planner::to_host(NodeRef device, NodeRef numa) const {
  if (is_one_socket(device, numa)) return {PathKind::node, 0};
  return topology::numa_of(machine_, device) ? PathClass{PathKind::sys, 0} : PathClass{};
}

// NUMA nodes of one socket (NPS4, SNC) have class SYS, but no link between sockets on their path: they count as NODE.
// So does PHB of a file that shows the host bridges of a node as one.
PathClass Planner::crossing_class(NodeRef a, NodeRef b) const {
  const auto path = path_class(a, b);
  if (path.kind == PathKind::sys && is_one_socket(a, b)) return {PathKind::node, 0};
  if (path.kind != PathKind::phb) return path;
  const auto pci = topology::pci_of(machine_, a);
  const auto bridge = pci ? machine_.pci[pci.index].host_bridge : topology::Ref<topology::HostBridge>{};
  return bridge && machine_.host_bridges[bridge.index].folded ? PathClass{PathKind::node, 0} : path;
}

void Planner::add_ceiling(Plan& plan, ConstantId constant, std::string_view what, Range factor) const {
  plan.terms.push_back({Term::kNone, constant, factor, what});
}

void Planner::add_latency(Plan& plan, PathClass path) const {
  plan.latency_us = plan.latency_us + constants_[latency_of(path.kind)];
}

// The PCIe links between two places: `up` is the share of capacity for links toward the CPU, `down` for those away.
void Planner::add_tree(Plan& plan, NodeRef from, NodeRef to, ConstantId up, ConstantId down) const {
  const auto assumed = [&](NodeRef node, bool is_down) {
    const auto found = of_assumed_.find(node);
    if (found == of_assumed_.end()) return;
    plan.terms.push_back({found->second + (is_down ? 1U : 0U), is_down ? down : up, Range::exactly(1), {}});
    if (const auto doubt = doubts_.find(found->second); doubt != doubts_.end()) plan.notes.push_back(doubt->second);
  };
  const auto steps = paths_.tree(from, to);
  if (!steps) {
    if (from.kind != NodeKind::numa_node) assumed(from, false);
    if (to.kind != NodeKind::numa_node) assumed(to, true);
    return;
  }
  for (const auto& step : *steps) {
    if (paths_.edges()[step.edge].kind != EdgeKind::pcie) continue;
    const auto first = of_edge_[step.edge];
    const auto constant = step.down ? down : up;
    plan.terms.push_back({first + (step.down ? 1U : 0U), constant, Range::exactly(1), {}});
    if (const auto doubt = doubts_.find(first); doubt != doubts_.end()) plan.notes.push_back(doubt->second);
  }
}

// Limits between two devices beyond their links: root complexes, sockets, and ordering.
void Planner::add_crossing(Plan& plan, NodeRef a, NodeRef b, Ordering ordering) const {
  const auto path = crossing_class(a, b);
  const bool amd = is_amd(cpu_);
  if (virtual_ && ordering != Ordering::relaxed) {
    add_ceiling(plan, ConstantId::strict_vm, "strict ordering in a virtual machine",
                ordering == Ordering::strict ? Range::exactly(1) : kOnlyBelow);
    plan.notes.emplace_back(
        "in a virtual machine GPU memory that is not registered with relaxed ordering was measured at 84 Gb/s");
  }
  if (path.kind == PathKind::self || path.kind == PathKind::pix || path.kind == PathKind::pxb) return;
  const auto strict = amd ? ConstantId::strict_amd : ConstantId::strict;
  if (ordering == Ordering::strict) {
    add_ceiling(plan, strict, "the plateau of strict ordering in a root complex");
    plan.notes.emplace_back(
        "a plateau at 15 to 16 GB/s is the mark of strict ordering: register with relaxed ordering");
  }
  if (path.kind == PathKind::sys) {
    add_ceiling(plan, across_sockets(cpu_), "the crossing between sockets");
    if (ordering == Ordering::unknown && cpu_ != CpuKind::unknown) {
      add_ceiling(plan, strict, "the usual plateau across sockets", kNotAbove);
    }
    if (ordering == Ordering::relaxed && cpu_ == CpuKind::unknown) {
      plan.notes.emplace_back(
          "what relaxed ordering brings across sockets depends on the CPU, which is unknown here: say --what-if "
          "cpu=spr");
    } else {
      plan.notes.emplace_back(
          "a plateau at 15 to 16 GB/s (120 to 128 Gb/s) is common across sockets; strict ordering is one of its "
          "causes");
    }
  } else if (path.kind == PathKind::node && !amd) {
    add_ceiling(plan, ConstantId::node, "the crossing between host bridges");
    if (ordering == Ordering::unknown) add_ceiling(plan, strict, "strict ordering in a root complex", kOnlyBelow);
  } else if (path.kind == PathKind::unknown) {
    add_ceiling(plan, ConstantId::sys_unknown, "an unknown path: the place of an end is not recorded",
                {1, kUnbounded, kUnbounded});
    plan.notes.emplace_back(
        "the place of an end is not recorded: the range spans from the nearest to the farthest path");
  }
}

// A device's DMA to memory of the other socket.
void Planner::add_socket_to_memory(Plan& plan, NodeRef device, NodeRef numa) const {
  const bool placed = device.kind == NodeKind::numa_node || topology::numa_of(machine_, device).known();
  if (!placed || is_one_socket(device, numa)) return;
  const auto steps = paths_.tree(device, numa);
  bool known = false;
  for (std::size_t i = 0; steps && i < steps->size(); ++i) {
    const auto& step = (*steps)[i];
    if (paths_.edges()[step.edge].kind != EdgeKind::socket || !paths_.edges()[step.edge].gbs) continue;
    plan.terms.push_back(
        {of_edge_[step.edge] + (step.down ? 1U : 0U), ConstantId::socket_memory, Range::exactly(1), {}});
    known = true;
  }
  if (!known) add_unknown_crossing(plan);
}

// How many links there are is unknown: at worst the rate between devices, with no upper bound.
void Planner::add_unknown_crossing(Plan& plan) const {
  add_ceiling(plan, across_sockets(cpu_), "the crossing between sockets", {1, 2, kUnbounded});
  plan.notes.emplace_back("the rate between the sockets is unknown: twice what peers reach is taken for memory");
}

void Planner::add_port(Plan& plan, const Endpoint& end, bool receives, const Conditions& how) const {
  const auto& nic = machine_.nics[end.index];
  auto rate = port_rate(machine_, end.index, assumptions_);
  if (!rate.gbps) {
    plan.notes.push_back(fmt::format("port of {}: its rate is unknown, so only its PCIe side is predicted", nic.name));
    return;
  }
  if (nic.rdma && machine_.rdma[nic.rdma.index].software.value_or(false)) {
    plan.notes.push_back(fmt::format(
        "{} is software: the CPU moves every byte, so it stays below what this model, made for NICs, expects",
        nic.name));
  }
  if (!rate.assumed.empty())
    plan.notes.push_back(fmt::format("port of {}: {} Gb/s, {}", nic.name, *rate.gbps, rate.assumed));
  const auto wire = wire_facts(machine_, end.index, how);
  if (wire.mtu_assumed) plan.notes.push_back(fmt::format("MTU of {}: unknown, 4096 is expected", nic.name));
  const double leg_gbs = *rate.gbps / 8;
  plan.terms.push_back({of_port_.at(node_of(end)) + (receives ? 1U : 0U), ConstantId::wire_fill, wire.payload, {}});
  add_ceiling(plan, ConstantId::one_qp, "what its queue pairs sustain", Range::exactly(how.qps / 8.0));
  add_messages(plan, leg_gbs, how);
  const auto legs = end.leg ? 1U : std::clamp(how.legs.value_or(rate.legs), 1U, rate.legs);
  if (legs == rate.legs && legs == 1) return;
  // Queue pairs on the legs of the bond: at worst all on one, at best spread evenly.
  const double best = round_robin_share(how.qps, legs);
  const Range share = how.round_robin ? Range::exactly(best) : Range{1.0 / legs, hashed_share(how.qps, legs), best};
  Range factor;
  for (const auto level : kLevels) factor.set(level, share.at(level) * legs * leg_gbs * wire.payload.at(level));
  add_ceiling(plan, ConstantId::wire_fill,
              how.qps == 1 || legs == 1 ? "one leg of its bond" : "its queue pairs' legs of the bond", factor);
  if (how.qps > 1 && !how.round_robin && legs > 1) {
    plan.notes.push_back(fmt::format("{} queue pairs hashed to {} legs use {:.0f} % of the bond on average", how.qps,
                                     legs, 100 * share.expected));
  }
}

// No NIC was seen to fill a port of 400 Gb/s or more in both directions at once.
void Planner::add_loop(Plan& plan, std::uint32_t nic, const Conditions& how) const {
  const auto rate = port_rate(machine_, nic, assumptions_);
  constexpr double kFast = 400;
  if (!rate.gbps || *rate.gbps < kFast) return;
  Range factor;
  const auto payload = wire_facts(machine_, nic, how).payload;
  for (const auto level : kLevels) factor.set(level, *rate.gbps * rate.legs / 8 * payload.at(level));
  add_ceiling(plan, ConstantId::nic_loop, "a loop through one NIC", factor);
}

void Planner::add_memory_to_nic(Plan& plan, const Endpoint& memory, std::uint32_t nic, bool reads,
                                const Conditions& how) const {
  const auto device = NodeRef{NodeKind::nic, nic};
  const auto place = node_of(memory);
  const auto from = reads ? place : device;
  const auto to = reads ? device : place;
  if (memory.kind == EndpointKind::host_memory) {
    add_tree(plan, from, to, ConstantId::pcie_dma, ConstantId::pcie_dma);
    add_socket_to_memory(plan, device, place);
    add_memory(plan, place, ConstantId::memory_nic);
    if (!reads && is_amd(cpu_) && how.ordering != Ordering::relaxed) {
      add_ceiling(plan, ConstantId::strict_amd, "strict ordering in an EPYC root complex",
                  how.ordering == Ordering::strict ? Range::exactly(1) : kOnlyBelow);
    }
    // Host memory on Emerald Rapids too: 16 in place of 40 GB/s.
    if (!reads && (cpu_ == CpuKind::intel_emerald || cpu_ == CpuKind::intel_granite) &&
        how.ordering == Ordering::strict) {
      add_ceiling(plan, ConstantId::strict, "strict ordering in an Emerald Rapids root complex");
    }
    plan.latency_us = plan.latency_us + constants_[ConstantId::latency_host];
    plan.path = to_host(device, place);
    return;
  }
  if (add_memory_by_c2c(plan, memory, nic, reads)) return;
  plan.path = path_class(place, device);
  const auto crossing = crossing_class(place, device).kind;
  const bool through_root = crossing == PathKind::phb || crossing == PathKind::node || crossing == PathKind::sys;
  add_tree(plan, from, to, ConstantId::pcie_dma,
           through_root && cuts_packets() ? ConstantId::pcie_64_bytes : ConstantId::pcie_dma);
  add_crossing(plan, place, device, how.ordering);
  if (reads && through_root && is_before_ampere(machine_.gpus[memory.index])) {
    add_ceiling(plan, ConstantId::gpu_read_old, "a NIC's reads of a GPU before Ampere");
    plan.notes.emplace_back(
        "a NIC reads GPUs before Ampere slowly through a root complex: staging in host memory may be faster");
  }
  add_latency(plan, plan.path);
}

Result<Plan> Planner::plan(const Flow& flow) const {
  Plan plan;
  const auto& how = flow.conditions;
  const auto refuse = [&](std::string_view why) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: {}", to_string(machine_, flow), why));
  };
  if (how.qps == 0) return refuse("needs at least one queue pair");
  if (flow.from.kind == EndpointKind::remote || flow.to.kind == EndpointKind::remote) {
    return refuse("a remote end needs its NIC to be chosen first");
  }
  if (flow.loop) {
    if (!is_peer_kind(flow.from.kind) || !is_peer_kind(flow.to.kind)) return refuse("a loop joins two memories");
    const Endpoint nic{EndpointKind::nic, *flow.loop, {}};
    add_memory_to_nic(plan, flow.from, *flow.loop, true, how);
    add_port(plan, nic, false, how);
    const auto path = plan.path;
    Plan back;
    add_port(back, nic, true, how);
    add_memory_to_nic(back, flow.to, *flow.loop, false, how);
    plan.add(back);
    plan.path = path;
    add_loop(plan, *flow.loop, how);
    return plan;
  }
  const bool hosts = flow.from.kind == EndpointKind::host_memory && flow.to.kind == EndpointKind::host_memory;
  if (hosts && how.mover != Mover::device) {
    add_cpu_copy(plan, flow.from, flow.to, how.mover);
    return plan;
  }
  if (flow.from == flow.to)
    return refuse("both ends are the same: name a NIC to loop through, or of host memory who copies (by=cpu)");
  const bool from_nic = flow.from.kind == EndpointKind::nic;
  const bool to_nic = flow.to.kind == EndpointKind::nic;
  if (from_nic && to_nic) {
    if (flow.from.index == flow.to.index) return refuse("both ends are the same NIC");
    add_port(plan, flow.from, false, how);
    add_port(plan, flow.to, true, how);
    plan.latency_us = plan.latency_us + constants_[ConstantId::latency_wire];
  } else if (to_nic) {
    add_memory_to_nic(plan, flow.from, flow.to.index, true, how);
    add_port(plan, flow.to, false, how);
  } else if (from_nic) {
    add_port(plan, flow.from, true, how);
    add_memory_to_nic(plan, flow.to, flow.from.index, false, how);
  } else if (flow.from.kind == EndpointKind::gpu && flow.to.kind == EndpointKind::gpu) {
    add_between_gpus(plan, flow.from.index, flow.to.index, how);
  } else if (hosts) {
    add_socket_to_memory(plan, node_of(flow.from), node_of(flow.to));
    plan.latency_us = plan.latency_us + constants_[ConstantId::latency_host];
    plan.path = {is_one_socket(node_of(flow.from), node_of(flow.to)) ? PathKind::node : PathKind::sys, 0};
  } else {
    add_host_copy(plan, flow.from, flow.to);
  }
  return plan;
}

}  // namespace fairway::predict
