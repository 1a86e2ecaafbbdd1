#pragma once

#include <string>
#include <vector>

#include "render/phrases.h"
#include "topology/machine.h"

namespace fairway::render {

// Ends with the same classes to all others share a row: the four NICs of a switch.
struct MatrixGroup {
  std::string name;                  // "NIC0-3"
  std::vector<std::size_t> members;  // positions in PathMatrix::ends
};
struct FoldedMatrix {
  topology::PathMatrix paths;
  std::vector<MatrixGroup> groups;

  // The class between two groups; within a group, of two of its members.
  [[nodiscard]] topology::PathClass at(std::size_t row, std::size_t column) const;
  // Two ends that represent the pair; the same end twice for a group of one.
  [[nodiscard]] std::pair<topology::NodeRef, topology::NodeRef> ends(std::size_t row, std::size_t column) const;
};

// Folds NICs, never GPUs, and only if the table would have more than `most_columns`.
FoldedMatrix fold(topology::PathMatrix paths, std::size_t most_columns = 24);

// Class and expected GB/s in each cell, side by side or, if the terminal is too narrow, one above the other; then the
// device of each NIC.
std::string matrix_text(const topology::Machine& machine, const ExpectRate& expect, const TextStyle& style);

// The matrix as `nvidia-smi topo -m` prints it: tabs, every cell, no rates. For scripts.
std::string matrix_plain(const topology::Machine& machine);

}  // namespace fairway::render
