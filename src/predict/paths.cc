#include "predict/paths.h"

#include <algorithm>

namespace fairway::predict {

using topology::EdgeKind;
using topology::NodeKind;
using topology::NodeRef;

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
