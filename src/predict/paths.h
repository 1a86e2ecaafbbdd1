#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "topology/machine.h"

namespace fairway::predict {

// One edge of a machine on a way through its tree; `down` when it is crossed from the end nearer to the CPU.
struct Step {
  std::uint32_t edge = 0;  // into Paths::edges()
  bool down = false;
};

// Ways through the PCIe trees, host bridges, NUMA nodes and sockets of a machine, and the links between its devices.
// Immutable after construction.
class Paths {
 public:
  explicit Paths(const topology::Machine& machine);

  [[nodiscard]] const std::vector<topology::Edge>& edges() const { return edges_; }
  // Up from the one to where the two trees meet, and down to the other; nothing where either has no place in a tree.
  // Trees that no source joins are crossed at their roots. NVLink and its like are direct().
  [[nodiscard]] std::optional<std::vector<Step>> tree(topology::NodeRef from, topology::NodeRef to) const;
  // Links that join exactly these two: several where a machine lists them apart.
  [[nodiscard]] std::vector<Step> direct(topology::NodeRef from, topology::NodeRef to) const;

 private:
  struct Above {
    topology::NodeRef node;
    std::uint32_t edge = 0;
  };
  [[nodiscard]] std::vector<Above> climb(topology::NodeRef from) const;

  std::vector<topology::Edge> edges_;
  std::map<topology::NodeRef, Above> above_;  // what each node hangs on, towards the CPU
  std::map<topology::NodeRef, bool> in_tree_;
};

}  // namespace fairway::predict
