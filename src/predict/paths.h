#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "topology/machine.h"

namespace fairway::predict {

// One edge of a path through the machine's tree; `down`: away from the CPU.
struct Step {
  std::uint32_t edge = 0;  // into Paths::edges()
  bool down = false;
};

// Paths through the PCIe trees, host bridges, NUMA nodes and sockets of a machine, and the links between its devices.
// Immutable after construction.
class Paths {
 public:
  explicit Paths(const topology::Machine& machine);

  [[nodiscard]] const std::vector<topology::Edge>& edges() const { return edges_; }
  // Up from one end to where the two meet, and down to the other; none if either has no place in a tree. Separate trees
  // are joined at their roots. NVLink and similar links are in direct().
  [[nodiscard]] std::optional<std::vector<Step>> tree(topology::NodeRef from, topology::NodeRef to) const;
  // Links between exactly these two; several if the machine lists them separately.
  [[nodiscard]] std::vector<Step> direct(topology::NodeRef from, topology::NodeRef to) const;

 private:
  struct Above {
    topology::NodeRef node;
    std::uint32_t edge = 0;
  };
  [[nodiscard]] std::vector<Above> climb(topology::NodeRef from) const;

  std::vector<topology::Edge> edges_;
  std::map<topology::NodeRef, Above> above_;  // the next node towards the CPU
  std::map<topology::NodeRef, bool> in_tree_;
};

}  // namespace fairway::predict
