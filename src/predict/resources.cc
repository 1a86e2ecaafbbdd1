#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "predict/model.h"
#include "topology/edges.h"

// What a Planner's flows share: links, ports, fabrics and memory, each with its capacity.
namespace fairway::predict {

using topology::EdgeKind;
using topology::NodeKind;
using topology::NodeRef;

namespace {

// The fastest PCIe link of a GPU or NIC below a bridge, GB/s; 0 where none is known.
double fastest_below(const topology::Machine& machine, const std::vector<topology::Edge>& edges, NodeRef bridge) {
  double fastest = 0;
  for (const auto& edge : edges) {
    if (edge.kind != EdgeKind::pcie || !edge.gbs || (edge.b.kind != NodeKind::gpu && edge.b.kind != NodeKind::nic))
      continue;
    for (auto above = topology::pci_of(machine, edge.b); above; above = machine.pci[above.index].parent) {
      if (NodeRef{NodeKind::pci, above.index} == bridge) fastest = std::max(fastest, *edge.gbs);
    }
  }
  return fastest;
}

}  // namespace

Planner::Planner(topology::Machine machine, Constants constants, Assumptions assumptions)
    : machine_(std::move(machine)),
      constants_(constants),
      assumptions_(std::move(assumptions)),
      paths_(machine_),
      cpu_(assumptions_.cpu ? *assumptions_.cpu : cpu_kind(machine_)),
      virtual_(is_virtual(machine_, assumptions_)),
      matrix_(topology::path_matrix(machine_)) {
  for (std::size_t i = 0; i < matrix_.ends.size(); ++i) matrix_place_[matrix_.ends[i]] = i;
  make_edges();
  make_ports();
  make_fabrics();
  make_memories();
}

std::uint32_t Planner::add_resource(ResourceKind kind, std::uint32_t index, NodeRef node, const Range& gbs) {
  const auto first = static_cast<std::uint32_t>(resources_.size());
  resources_.push_back({kind, index, node, false, gbs});
  resources_.push_back({kind, index, node, true, gbs});
  return first;
}

void Planner::make_edges() {
  const auto& edges = paths_.edges();
  const auto doubtful = topology::doubtful_edges(machine_, edges);
  std::map<std::uint32_t, std::uint32_t> of_physical;
  of_edge_.resize(edges.size());
  for (std::uint32_t i = 0; i < edges.size(); ++i) {
    const auto& edge = edges[i];
    const auto [place, fresh] = of_physical.try_emplace(edge.physical, static_cast<std::uint32_t>(resources_.size()));
    of_edge_[i] = place->second;
    if (!fresh) continue;
    Range gbs = Range::exactly(edge.gbs ? *edge.gbs : kUnbounded);
    const auto first = add_resource(ResourceKind::edge, i, edge.b, gbs);
    const auto set = [&](const Range& range, std::string doubt) {
      resources_[first].gbs = resources_[first + 1].gbs = range;
      doubts_[first] = std::move(doubt);
    };
    const auto name = topology::node_name(machine_, edge.b);
    const bool device = edge.b.kind == NodeKind::gpu || edge.b.kind == NodeKind::nic;
    if (device && edge.kind == EdgeKind::pcie && assumptions_.link_gbs.contains(edge.b)) {
      set(Range::exactly(assumptions_.link_gbs.at(edge.b)), fmt::format("link of {}: as you said", name));
    } else if (device && edge.kind == EdgeKind::pcie && !edge.gbs) {
      const auto assumed = assumed_pcie(machine_, edge.b, assumptions_);
      set(assumed.gbs, fmt::format("link of {}: {}", name, assumed.assumed));
    } else if (doubtful[i]) {
      // Whatever it is, it carries what the fastest device below it can.
      const double least = fastest_below(machine_, edges, edge.b);
      set(least > 0 ? Range{least, least, kUnbounded} : Range::exactly(kUnbounded),
          edge.gbs ? fmt::format("the link above {} reports {:.1f} GB/s, less than half of a link below it: ignored",
                                 name, *edge.gbs)
                   : fmt::format("the link above {} reports 2.5 GT/s x1, as emulated bridges do: ignored", name));
    } else if (edge.b.kind == NodeKind::gpu && edge.gbs && !edge.max_gbs && edge.kind == EdgeKind::pcie &&
               assumed_pcie(machine_, edge.b, assumptions_).gbs.low > 4 * *edge.gbs) {
      // A source without the highest speed, such as hwloc's XML, read an idle GPU at the lowest one.
      const auto best = assumed_pcie(machine_, edge.b, assumptions_).gbs;
      set({*edge.gbs, best.expected, best.high},
          fmt::format("link of {}: {:.1f} GB/s as read, less than a quarter of its model's: read while it idled", name,
                      *edge.gbs));
    } else if (device && edge.gbs && edge.max_gbs && *edge.max_gbs > *edge.gbs * 1.01) {
      if (topology::is_idle_reading(machine_, edge)) {
        set({*edge.gbs, *edge.max_gbs, *edge.max_gbs},
            fmt::format("link of {}: read while it idled; its best is expected", name));
      } else {
        set(Range::exactly(*edge.gbs),
            fmt::format("link of {} runs at {:.1f} of {:.1f} GB/s", name, *edge.gbs, *edge.max_gbs));
      }
    }
  }
}

void Planner::make_ports() {
  const auto assume = [this](NodeRef node) {
    const auto assumed = assumed_pcie(machine_, node, assumptions_);
    const auto first = add_resource(ResourceKind::assumed_link, node.index, node, assumed.gbs);
    of_assumed_[node] = first;
    doubts_[first] = fmt::format("link of {}: {}", topology::node_name(machine_, node), assumed.assumed);
  };
  for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) assume({NodeKind::gpu, i});
  for (std::uint32_t i = 0; i < machine_.nics.size(); ++i) {
    const NodeRef node{NodeKind::nic, i};
    assume(node);
    const auto rate = port_rate(machine_, i, assumptions_);
    const auto gbs = Range::exactly(rate.gbps ? *rate.gbps * rate.legs / 8 : kUnbounded);
    of_port_[node] = add_resource(ResourceKind::port, i, node, gbs);
  }
}

// The rate of each GPU to its NVSwitches, all links together.
void Planner::make_fabrics() {
  std::map<std::uint32_t, Range> into;
  for (const auto& link : machine_.links) {
    if (link.kind != topology::LinkKind::nvlink) continue;
    const auto gpu = link.a.kind == NodeKind::gpu ? link.a : link.b;
    const auto other = link.a.kind == NodeKind::gpu ? link.b : link.a;
    if (gpu.kind != NodeKind::gpu || other.kind != NodeKind::nv_switch) continue;
    const auto count = link.active ? link.active : link.count;
    const auto each = link.gbs_per_link ? Range::exactly(*link.gbs_per_link) : nvlink_gbs(machine_, gpu.index);
    into[gpu.index] = into[gpu.index] + each * count.value_or(0);
  }
  for (const auto& [gpu, gbs] : into) {
    if (gbs.expected <= 0) continue;
    const NodeRef node{NodeKind::gpu, gpu};
    of_fabric_[node] = add_resource(ResourceKind::nvlink_fabric, gpu, node, gbs);
  }
}

std::string Planner::describe(const Resource& resource) const {
  const auto name = topology::node_name(machine_, resource.node);
  switch (resource.kind) {
    case ResourceKind::port: return fmt::format("port of {} ({})", name, resource.down ? "in" : "out");
    case ResourceKind::assumed_link: return fmt::format("PCIe link of {}", name);
    case ResourceKind::memory: return fmt::format("memory channels of {}", name);
    case ResourceKind::nvlink_fabric: return fmt::format("NVLink of {} ({})", name, resource.down ? "in" : "out");
    case ResourceKind::edge: {
      const auto& edge = paths_.edges()[resource.index];
      if (edge.kind == EdgeKind::pcie) {
        const bool device = edge.b.kind == NodeKind::gpu || edge.b.kind == NodeKind::nic;
        return fmt::format("PCIe link {} {}", device ? "of" : "above", name);
      }
      return fmt::format("{} between {} and {}", topology::to_string(edge.kind), topology::node_name(machine_, edge.a),
                         name);
    }
  }
  return name;
}

// Host memory: the rate of its channels, and of copies by CPUs. Also messages that are too small or too few.

namespace {

// GB/s of all memory channels of one socket, as these CPUs are usually filled.
Range channels_gbs(const topology::Machine& machine, CpuKind cpu) {
  const auto named = [&](std::string_view word) {
    return std::ranges::any_of(machine.packages, [&](const topology::Package& package) {
      return package.model && package.model->find(word) != std::string::npos;
    });
  };
  switch (cpu) {
    case CpuKind::intel_old: return {51.2, 76.8, 76.8};          // 4 x DDR4-2400
    case CpuKind::intel_skylake: return {128, 140.8, 204.8};     // 6 x 2666 to 8 x 3200 (Ice Lake)
    case CpuKind::intel_sapphire: return {281.6, 307.2, 307.2};  // 8 x DDR5-4400 to 4800
    case CpuKind::intel_emerald: return {307.2, 358.4, 409.6};   // 8 x 5600
    case CpuKind::intel_granite: return {409.6, 614.4, 844.8};   // 8 or 12 x 6400, 12 x 8800 (MRDIMM)
    case CpuKind::amd_zen12: return {170.6, 204.8, 204.8};       // 8 x DDR4-2666 to 3200
    case CpuKind::amd_zen34:                                     // Milan has 8 x DDR4-3200, Genoa 12 x DDR5-4800
      return named("EPYC 7")   ? Range::exactly(204.8)
             : named("EPYC 9") ? Range::exactly(460.8)
                               : Range{204.8, 204.8, 460.8};
    case CpuKind::amd_zen5: return {576, 576, 614.4};  // 12 x 6000 to 6400
    case CpuKind::power9: return {150, 170, 170};
    case CpuKind::arm:
    case CpuKind::zhaoxin: return Range::exactly(kUnbounded);
    case CpuKind::unknown: break;
  }
  // From a desktop's two channels to Turin's twelve; expected is the mean of Ice Lake's and Milan's 204.8, Sapphire
  // Rapids' 307.2 and Emerald Rapids' 358.4, the usual servers.
  return {40, 290, 614.4};
}

}  // namespace

void Planner::make_memories() {
  const auto socket = channels_gbs(machine_, cpu_);
  if (!std::isfinite(socket.expected)) return;  // the channels of such sockets are unknown
  for (std::uint32_t i = 0; i < machine_.numa_nodes.size(); ++i) {
    const auto package = machine_.numa_nodes[i].package;
    // Memory without CPUs (CXL, HBM, a GPU's) has channels of its own, which are unknown.
    const auto memory_alone = [](const topology::NumaNode& node) { return node.cpus && node.cpus->empty(); };
    if (memory_alone(machine_.numa_nodes[i])) continue;
    // The nodes of a socket share its channels. Without recorded sockets each node is one.
    const auto sharing = std::ranges::count_if(machine_.numa_nodes, [&](const auto& other) {
      return package && other.package == package && !memory_alone(other);
    });
    const double part = 1.0 / static_cast<double>(std::max<std::ptrdiff_t>(sharing, 1));
    Range gbs;
    for (const auto level : kLevels) gbs.set(level, socket.at(level) * part);
    const NodeRef node{NodeKind::numa_node, i};
    of_memory_[node] = static_cast<std::uint32_t>(resources_.size());
    resources_.push_back({ResourceKind::memory, i, node, false, gbs});
  }
}

void Planner::add_memory(Plan& plan, NodeRef numa, ConstantId constant) const {
  if (const auto found = of_memory_.find(numa); found != of_memory_.end())
    plan.terms.push_back({found->second, constant, Range::exactly(1), {}});
}

// Small messages: a queue pair sends only so many a second, and only so many are in flight. `line_gbs`: the rate at
// which the bytes of one message leave.
void Planner::add_messages(Plan& plan, double line_gbs, const Conditions& how) const {
  if (!how.message_bytes) return;
  const auto bytes = static_cast<double>(*how.message_bytes);
  add_ceiling(plan, ConstantId::nic_messages, "the messages that its queue pairs send",
              Range::exactly(how.qps * bytes * 1e-3));
  if (!how.outstanding) return;
  // So many messages in each round trip, which includes the time of their bytes.
  const double window = static_cast<double>(*how.outstanding) * how.qps * bytes;
  const auto& trip = constants_[ConstantId::round_trip];
  Range gbs;
  for (const auto level : kLevels) {
    const double us = level == Level::low ? trip.high : level == Level::high ? trip.low : trip.expected;
    gbs.set(level, window / (us * 1e3 + bytes / line_gbs));
  }
  // wire.fill already counts what the port loses.
  add_ceiling(plan, ConstantId::wire_fill,
              *how.outstanding == 1 ? "one message at a time" : "the messages that may be on the way", gbs);
}

void Planner::add_stage(Plan& plan, const Range& slowest) const {
  add_ceiling(plan, ConstantId::stage, "staging in host memory", slowest);
}

void Planner::add_cpu_copy(Plan& plan, const Endpoint& from, const Endpoint& to, Mover mover) const {
  const auto a = node_of(from);
  const auto b = node_of(to);
  if (mover == Mover::cpu) {
    add_ceiling(plan, ConstantId::copy_core, "what one core copies in memory: more within its caches");
  } else {
    add_ceiling(plan, ConstantId::copy_sockets, "what one TCP connection within a host moves");
  }
  add_memory(plan, a, ConstantId::memory_copy);
  add_memory(plan, b, ConstantId::memory_copy);
  add_socket_to_memory(plan, a, b);
  plan.latency_us = plan.latency_us + constants_[ConstantId::latency_host];
  plan.path = {a == b                ? topology::PathKind::self
               : is_one_socket(a, b) ? topology::PathKind::node
                                     : topology::PathKind::sys,
               0};
}

}  // namespace fairway::predict
