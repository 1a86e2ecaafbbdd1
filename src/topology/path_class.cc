#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/edges.h"
#include "topology/machine.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

// The links between GPUs, summed once, since machines have thousands. All NVSwitches of a machine count as one fabric:
// each reaches every GPU of its baseboard, and trunks that no driver lists join the two baseboards of a DGX-2.
class LinkTable {
 public:
  explicit LinkTable(const Machine& machine)
      : into_fabric_(machine.gpus.size(), 0), unrecorded_(!unrecorded_gpu_links(machine).empty()) {
    for (const auto& link : machine.links) {
      const auto count = link.active ? *link.active : link.count.value_or(0);
      if (link.a.kind == NodeKind::gpu && link.b.kind == NodeKind::gpu) {
        auto& pair = direct_[std::minmax(link.a.index, link.b.index)];
        if (link.kind == LinkKind::nvlink) pair.first += count;
        if (link.kind == LinkKind::xgmi) pair.second += count;
      }
      if (link.kind != LinkKind::nvlink) continue;
      if (link.a.kind == NodeKind::gpu && link.b.kind == NodeKind::nv_switch) into_fabric_[link.a.index] += count;
      if (link.b.kind == NodeKind::gpu && link.a.kind == NodeKind::nv_switch) into_fabric_[link.b.index] += count;
    }
  }

  // NVLink is not recorded: by the PCI tree alone the GPUs would look far apart.
  [[nodiscard]] bool unrecorded() const { return unrecorded_; }

  // NV# counts direct links, and through NVSwitches those of the GPU with fewer.
  [[nodiscard]] PathClass between(std::uint32_t a, std::uint32_t b) const {
    auto nvlinks = std::min(into_fabric_[a], into_fabric_[b]);
    std::uint32_t xgmi = 0;
    if (const auto found = direct_.find(std::minmax(a, b)); found != direct_.end()) {
      nvlinks += found->second.first;
      xgmi = found->second.second;
    }
    if (nvlinks > 0) return {PathKind::nvlink, nvlinks};
    if (xgmi > 0) return {PathKind::xgmi, xgmi};
    return {};
  }

 private:
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, std::uint32_t>> direct_;  // NVLinks, xGMI
  std::vector<std::uint32_t> into_fabric_;  // links of each GPU to NVSwitches
  bool unrecorded_ = false;
};

// The device and the bridges above it, nearest first; bounded in case of a cycle.
std::vector<std::uint32_t> chain_of(const Machine& machine, Ref<PciDevice> device) {
  std::vector<std::uint32_t> chain;
  while (device && chain.size() <= kMaxPciDepth) {
    chain.push_back(device.index);
    device = machine.pci[device.index].parent;
  }
  return chain;
}

bool is_switch(const PciDevice& device) {
  return device.kind == PciKind::switch_upstream || device.kind == PciKind::pci_switch;
}

PathClass pci_class(const Machine& machine, NodeRef a, NodeRef b) {
  const auto pci_a = pci_of(machine, a);
  const auto pci_b = pci_of(machine, b);
  if (!pci_a || !pci_b) return {};
  if (pci_a == pci_b) return {PathKind::pix, 0};
  const auto& device_a = machine.pci[pci_a.index];
  const auto& device_b = machine.pci[pci_b.index];
  if (!device_a.host_bridge || !device_b.host_bridge) return {};
  if (device_a.host_bridge != device_b.host_bridge) {
    const auto numa_a = numa_of(machine, a);
    const auto numa_b = numa_of(machine, b);
    if (numa_a && numa_b) return {*numa_a == *numa_b ? PathKind::node : PathKind::sys, 0};
    // With a single node all devices are near it, whatever the firmware says.
    return machine.numa_nodes.size() == 1 ? PathClass{PathKind::node, 0} : PathClass{};
  }
  const auto chain_a = chain_of(machine, pci_a);
  const auto chain_b = chain_of(machine, pci_b);
  for (std::size_t i = 0; i < chain_a.size(); ++i) {
    const auto meet = std::ranges::find(chain_b, chain_a[i]);
    if (meet == chain_b.end()) continue;
    // Whole switches crossed, the one where the two meet included.
    int switches = is_switch(machine.pci[chain_a[i]]) ? 1 : 0;
    for (std::size_t k = 1; k < i; ++k) switches += is_switch(machine.pci[chain_a[k]]) ? 1 : 0;
    for (auto it = chain_b.begin(); it != meet; ++it) {
      if (it != chain_b.begin()) switches += is_switch(machine.pci[*it]) ? 1 : 0;
    }
    return {switches <= 1 ? PathKind::pix : PathKind::pxb, 0};
  }
  return {PathKind::phb, 0};
}

PathClass from_tree(const Machine& machine, const LinkTable& links, NodeRef a, NodeRef b) {
  if (a == b) return {PathKind::self, 0};
  if (a.kind == NodeKind::gpu && b.kind == NodeKind::gpu) {
    const auto direct = links.between(a.index, b.index);
    if (direct.kind != PathKind::unknown || links.unrecorded()) return direct;
  }
  return pci_class(machine, a, b);
}

PathClass recorded(const Machine& machine, NodeRef a, NodeRef b) {
  const auto& ends = machine.matrix.ends;
  const auto row = std::ranges::find(ends, a);
  const auto column = std::ranges::find(ends, b);
  if (row == ends.end() || column == ends.end()) return {};
  const auto r = static_cast<std::size_t>(row - ends.begin());
  const auto c = static_cast<std::size_t>(column - ends.begin());
  const auto& cell = machine.matrix.cells[r * ends.size() + c];
  // The matrix is symmetric: the other half fills in for a part that was cut off.
  return cell.kind == PathKind::unknown ? machine.matrix.cells[c * ends.size() + r] : cell;
}

Fact<PathClass> classify(const Machine& machine, const LinkTable& links, NodeRef a, NodeRef b) {
  const auto tree = from_tree(machine, links, a, b);
  // Links inferred from the captured matrix do not override its PCI classes. A tree without links cannot tell NV#; the
  // capture can.
  const auto written = recorded(machine, a, b);
  if (tree.kind == PathKind::unknown || (written.kind == PathKind::nvlink && tree.kind != PathKind::nvlink)) {
    if (written.kind != PathKind::unknown) return {written, machine.matrix.source};
  }
  if (tree.kind == PathKind::unknown) return {};
  return {tree, Source::derived};
}

}  // namespace

std::optional<PathClass> PathClass::parse(std::string_view input) {
  const auto word = text::lower(text::trim(input));
  const auto counted = [&word](std::size_t prefix, PathKind counted_kind) -> std::optional<PathClass> {
    const auto n = text::to_u32(std::string_view(word).substr(prefix));
    if (!n || *n == 0 || *n > 1024) return {};
    return PathClass{counted_kind, *n};
  };
  if (word == "x") return PathClass{PathKind::self, 0};
  if (word == "pix") return PathClass{PathKind::pix, 0};
  if (word == "pxb") return PathClass{PathKind::pxb, 0};
  if (word == "phb") return PathClass{PathKind::phb, 0};
  if (word == "node") return PathClass{PathKind::node, 0};
  if (word == "sys" || word == "soc") return PathClass{PathKind::sys, 0};  // SOC: drivers before 390
  if (word == "?") return PathClass{};
  if (word.starts_with("nv")) return counted(2, PathKind::nvlink);
  if (word.starts_with("xgmi")) return counted(4, PathKind::xgmi);
  return {};
}

std::string PathClass::to_string() const {
  switch (kind) {
    case PathKind::self: return "X";
    case PathKind::nvlink: return fmt::format("NV{}", links);
    case PathKind::xgmi: return fmt::format("XGMI{}", links);
    case PathKind::pix: return "PIX";
    case PathKind::pxb: return "PXB";
    case PathKind::phb: return "PHB";
    case PathKind::node: return "NODE";
    case PathKind::sys: return "SYS";
    case PathKind::unknown: return "?";
  }
  return "?";
}

PathClass path_class_from_tree(const Machine& machine, NodeRef a, NodeRef b) {
  return from_tree(machine, LinkTable(machine), a, b);
}

Fact<PathClass> path_class(const Machine& machine, NodeRef a, NodeRef b) {
  return classify(machine, LinkTable(machine), a, b);
}

std::vector<NodeRef> matrix_ends(const Machine& machine) {
  std::vector<NodeRef> out;
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) out.push_back({NodeKind::gpu, i});
  const bool any_rdma = std::ranges::any_of(machine.nics, [&machine](const Nic& nic) {
    return nic.rdma && !machine.rdma[nic.rdma.index].software.value_or(false);
  });
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto& nic = machine.nics[i];
    const bool hardware = nic.rdma && !machine.rdma[nic.rdma.index].software.value_or(false);
    const auto& ends = machine.matrix.ends;
    const bool in_capture = std::ranges::find(ends, NodeRef{NodeKind::nic, i}) != ends.end();
    if (hardware || in_capture || (!any_rdma && !nic.rdma)) out.push_back({NodeKind::nic, i});
  }
  return out;
}

PathMatrix path_matrix(const Machine& machine) {
  PathMatrix matrix;
  matrix.ends = matrix_ends(machine);
  if (matrix.ends.size() > kMaxMatrixEnds) matrix.ends.resize(kMaxMatrixEnds);
  std::uint32_t nics = 0;
  for (const auto end : matrix.ends)
    matrix.names.push_back(end.kind == NodeKind::gpu ? node_name(machine, end) : fmt::format("NIC{}", nics++));
  const LinkTable links(machine);
  // An end without any place has a path to itself alone.
  std::vector<bool> placed;
  for (const auto end : matrix.ends) {
    const auto& written = machine.matrix.ends;
    placed.push_back(end.kind == NodeKind::gpu || pci_of(machine, end) ||
                     std::ranges::find(written, end) != written.end());
  }
  matrix.cells.resize(matrix.ends.size() * matrix.ends.size());
  for (std::size_t r = 0; r < matrix.ends.size(); ++r) {
    for (std::size_t c = 0; c < matrix.ends.size(); ++c) {
      if (r != c && (!placed[r] || !placed[c])) continue;
      matrix.cells[r * matrix.ends.size() + c] =
          classify(machine, links, matrix.ends[r], matrix.ends[c]).value_or(PathClass{});
    }
  }
  return matrix;
}

std::vector<ClassConflict> class_conflicts(const Machine& machine) {
  std::vector<ClassConflict> conflicts;
  const LinkTable links(machine);
  const auto& ends = machine.matrix.ends;
  for (std::size_t r = 0; r < ends.size(); ++r) {
    for (std::size_t c = r + 1; c < ends.size(); ++c) {
      const auto tree = from_tree(machine, links, ends[r], ends[c]);
      const auto written = recorded(machine, ends[r], ends[c]);
      if (tree.kind == PathKind::unknown || written.kind == PathKind::unknown || tree == written) continue;
      // A tree without NVLinks does not contradict a capture that has them.
      if (written.kind == PathKind::nvlink && !has_gpu_links(machine)) continue;
      conflicts.push_back({ends[r], ends[c], tree, written});
    }
  }
  return conflicts;
}

}  // namespace fairway::topology
