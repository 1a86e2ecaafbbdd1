#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "render/phrases.h"
#include "topology/machine.h"

namespace fairway::render {

enum class BoxKind : std::uint8_t {
  machine,  // above all others if no socket is known
  package,
  numa,
  host_bridge,
  pci_switch,
  gpu,
  nic,
  nv_switch,
  unplaced,  // devices whose place is unknown
};

// The state of the link to the parent. Unknown is not a fault.
enum class Health : std::uint8_t { good, reduced, down };

struct BondPort {
  std::string name;  // of the leg's interface
  topology::Fact<bool> up;
  topology::Fact<double> gbps;
};

// One box of the picture, or one line of the tree, with what is below it.
struct Box {
  BoxKind kind = BoxKind::machine;
  topology::NodeRef node;      // none for a box that is only drawn
  std::string name;            // "GPU3"
  std::string model;           // "H100 80GB HBM3"
  std::string place;           // "0000:1b:00.0", "bus 0000:17"
  topology::Fact<double> gbs;  // of the link above it, GB/s per direction
  topology::Fact<double> max_gbs;
  std::string link_words;  // "Gen5 x16"
  Health health = Health::good;
  bool doubted = false;         // the reported rate of the link above it is implausible
  bool inferred = false;        // inferred from a recorded matrix, not from a tree
  bool muted = false;           // not for bulk traffic: a management port
  std::vector<BondPort> ports;  // of a bonded NIC
  std::string others;           // devices here that are not drawn: "2 NVMe, 1 other"
  std::vector<Box> children;
};

Box make_box(BoxKind kind, topology::NodeRef node, std::string name);

// The machine as people draw it: sockets, NUMA nodes, host bridges, switches, devices. Ports of switches and root ports
// are edges, and bridges without devices are left out. Devices of unknown place are apart, grouped by their recorded
// classes.
struct Outline {
  std::vector<Box> roots;
};
Outline outline(const topology::Machine& machine);

// Every box, parents first.
template <class Visit>
void for_each_box(const std::vector<Box>& boxes, Visit visit) {
  for (const Box& box : boxes) {
    visit(box);
    for_each_box(box.children, visit);
  }
}

// The outline as indented lines, for issue reports: every device with its bus id, link and rate. Plain ASCII branches.
std::string tree_text(const topology::Machine& machine, const TextStyle& style);
std::string tree_text(const topology::Fabric& fabric, const TextStyle& style);

}  // namespace fairway::render
