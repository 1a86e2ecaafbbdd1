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
  // The way with the fewest edges; nothing where either end has no place in the tree. Only trees and sockets: NVLink
  // and its like are direct().
  [[nodiscard]] std::optional<std::vector<Step>> tree(topology::NodeRef from, topology::NodeRef to) const;
  // Links that join exactly these two: several where a machine lists them apart.
  [[nodiscard]] std::vector<Step> direct(topology::NodeRef from, topology::NodeRef to) const;

 private:
  struct Arc {
    std::uint32_t to;
    std::uint32_t edge;
    bool down;
  };
  // How a breadth-first search from one node reached each other one.
  struct Reach {
    std::uint32_t before = 0;
    Step step;
    bool seen = false;
  };
  std::uint32_t number(topology::NodeRef node);
  [[nodiscard]] std::vector<Reach> search(std::uint32_t from) const;

  std::vector<topology::Edge> edges_;
  std::map<topology::NodeRef, std::uint32_t> numbers_;
  std::vector<std::vector<Arc>> arcs_;
  std::map<std::uint32_t, std::vector<Reach>> reached_;  // from each GPU, NIC and NUMA node
};

}  // namespace fairway::predict
