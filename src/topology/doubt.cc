#include "topology/doubt.h"

#include <algorithm>
#include <map>

#include "topology/catalog.h"

namespace fairway::topology {
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

}  // namespace fairway::topology
