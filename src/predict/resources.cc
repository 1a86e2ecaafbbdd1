#include <algorithm>

#include <fmt/format.h>

#include "predict/plan.h"
#include "topology/doubt.h"

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

}  // namespace fairway::predict
