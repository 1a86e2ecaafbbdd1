#include "predict/paths.h"

#include <algorithm>

namespace fairway::predict {

using topology::EdgeKind;
using topology::NodeKind;
using topology::NodeRef;

namespace {

bool is_tree(EdgeKind kind) {
  return kind == EdgeKind::pcie || kind == EdgeKind::internal || kind == EdgeKind::memory || kind == EdgeKind::socket;
}

}  // namespace

Paths::Paths(const topology::Machine& machine) : edges_(topology::edges(machine)) {
  for (std::uint32_t i = 0; i < edges_.size(); ++i) {
    const auto& edge = edges_[i];
    if (!is_tree(edge.kind) || edge.a.kind == NodeKind::none || edge.b.kind == NodeKind::none) continue;
    const auto a = number(edge.a);
    const auto b = number(edge.b);
    arcs_[a].push_back({b, i, true});
    arcs_[b].push_back({a, i, false});
  }
  // Searched once for every node that a flow may start at, so that looking a way up is cheap.
  for (const auto& [node, n] : numbers_) {
    if (node.kind == NodeKind::gpu || node.kind == NodeKind::nic || node.kind == NodeKind::numa_node) {
      reached_[n] = search(n);
    }
  }
}

std::uint32_t Paths::number(NodeRef node) {
  const auto [place, fresh] = numbers_.try_emplace(node, static_cast<std::uint32_t>(arcs_.size()));
  if (fresh) arcs_.emplace_back();
  return place->second;
}

std::vector<Paths::Reach> Paths::search(std::uint32_t from) const {
  std::vector<Reach> reach(arcs_.size());
  std::vector<std::uint32_t> queue{from};
  reach[from].seen = true;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const auto here = queue[head];
    for (const auto& arc : arcs_[here]) {
      if (reach[arc.to].seen) continue;
      reach[arc.to] = {here, {arc.edge, arc.down}, true};
      queue.push_back(arc.to);
    }
  }
  return reach;
}

std::optional<std::vector<Step>> Paths::tree(NodeRef from, NodeRef to) const {
  const auto a = numbers_.find(from);
  const auto b = numbers_.find(to);
  if (a == numbers_.end() || b == numbers_.end()) return {};
  const auto found = reached_.find(a->second);
  if (found == reached_.end() || !found->second[b->second].seen) return {};
  std::vector<Step> steps;
  for (auto at = b->second; at != a->second; at = found->second[at].before) steps.push_back(found->second[at].step);
  std::reverse(steps.begin(), steps.end());
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
