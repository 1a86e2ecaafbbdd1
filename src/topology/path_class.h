#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/fact.h"
#include "topology/ids.h"

namespace fairway::topology {

struct Machine;

// nvidia-smi's names, nearest first, and AMD's name for xGMI.
enum class PathKind : std::uint8_t {
  self,     // X
  nvlink,   // NV#: a bonded set of # NVLinks, direct or through NVSwitches
  xgmi,     // XGMI#: # direct xGMI links
  pix,      // at most one PCIe switch
  pxb,      // several PCIe switches, no host bridge
  phb,      // one PCIe host bridge
  node,     // several host bridges of one NUMA node
  sys,      // different NUMA nodes
  unknown,  // ?: the place of an end is not recorded
};

struct PathClass {
  PathKind kind = PathKind::unknown;
  std::uint32_t links = 0;  // the # of NV# and XGMI#

  // "X", "NV18", "PIX", "?": case and surrounding blanks do not matter. None for other text.
  static std::optional<PathClass> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const PathClass&, const PathClass&) = default;
};

// The cells of a captured `nvidia-smi topo -m`.
struct RecordedMatrix {
  std::vector<NodeRef> ends;     // gpu or nic, in the order of its columns
  std::vector<PathClass> cells;  // ends.size() squared, row by row; unknown beyond where the capture is cut off
  Source source = Source::none;
  [[nodiscard]] bool empty() const { return ends.empty(); }
  friend bool operator==(const RecordedMatrix&, const RecordedMatrix&) = default;
};

// The class between two GPUs or NICs of a machine: from its links and PCI tree if they place both (source: derived),
// else as recorded (source: topo_matrix), else unknown.
Fact<PathClass> path_class(const Machine& machine, NodeRef a, NodeRef b);
// The same from the tree alone, never from a recorded matrix.
PathClass path_class_from_tree(const Machine& machine, NodeRef a, NodeRef b);

// The matrix grows with the square, and no screen shows more.
inline constexpr std::size_t kMaxMatrixEnds = 2048;

// The matrix that `fairway topo` prints: all GPUs, then the NICs that nvidia-smi would number (those with an RDMA
// device; every network function where the machine has none); the first kMaxMatrixEnds of them.
struct PathMatrix {
  std::vector<NodeRef> ends;
  std::vector<PathClass> cells;
  std::vector<std::string> names;  // of each end: a GPU's own, "NIC0" by its place among those of the matrix
  [[nodiscard]] const PathClass& at(std::size_t row, std::size_t column) const {
    return cells[row * ends.size() + column];
  }
};
PathMatrix path_matrix(const Machine& machine);
std::vector<NodeRef> matrix_ends(const Machine& machine);  // all of them, also beyond kMaxMatrixEnds

// Cells in which the tree and the recorded matrix differ.
struct ClassConflict {
  NodeRef a;
  NodeRef b;
  PathClass tree;
  PathClass recorded;
};
std::vector<ClassConflict> class_conflicts(const Machine& machine);

}  // namespace fairway::topology
