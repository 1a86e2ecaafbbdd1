#pragma once

#include <string>
#include <vector>

#include "render/expected.h"
#include "render/words.h"
#include "topology/machine.h"

namespace fairway::render {

// Ends of the matrix that look the same from everywhere stand in one row: the four NICs of a switch.
struct MatrixGroup {
  std::string name;                  // "NIC0-3"
  std::vector<std::size_t> members;  // positions in PathMatrix::ends
};
struct FoldedMatrix {
  topology::PathMatrix paths;
  std::vector<MatrixGroup> groups;

  // The class between two groups; within a group, of two of its members.
  [[nodiscard]] topology::PathClass at(std::size_t row, std::size_t column) const;
  // Two ends that stand for the pair; the same end twice for a group of one with itself.
  [[nodiscard]] std::pair<topology::NodeRef, topology::NodeRef> ends(std::size_t row, std::size_t column) const;
};

// "GPU3", "NIC0": as nvidia-smi numbers them.
std::string matrix_name(const topology::PathMatrix& paths, std::size_t end);

// GPUs are never folded, NICs are when the table would otherwise have more than `most_columns`.
FoldedMatrix fold(topology::PathMatrix paths, std::size_t most_columns = 24);

// Class and expected GB/s per cell, side by side where the width allows and one above the other where not; then which
// NIC is which device.
std::string matrix_text(const topology::Machine& machine, const ExpectRate& expect, const TextStyle& style);

// What `nvidia-smi topo -m` would print of the devices: tabs, every cell, no figures. For scripts.
std::string matrix_plain(const topology::Machine& machine);

}  // namespace fairway::render
