#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace fairway::render {

// The device links of one kind as one thing to draw and to say: all through switches, or pair by pair.
struct LinkFabric {
  topology::LinkKind kind = topology::LinkKind::nvlink;
  std::string name;                           // "NVLink 4", "xGMI"
  std::vector<std::uint32_t> gpus;            // those with such links, by index
  std::vector<topology::DeviceLink> pairs;    // GPU to GPU
  std::vector<std::uint32_t> switches;        // NVSwitches it passes; empty where it is direct
  bool switches_seen = false;                 // else they are only concluded, and one stands for however many
  std::optional<std::uint32_t> links_of_gpu;  // of every one of them; none where they differ
  std::optional<double> gbs_of_gpu;           // GB/s per direction
  std::optional<double> gbs_per_link;
  bool uniform = false;   // every GPU has the same links to every other, or to the switches
  bool degraded = false;  // some links are not up
};
// In the order nvlink, xgmi. C2C is not between GPUs and is not here.
std::vector<LinkFabric> link_fabrics(const topology::Machine& machine);

// One sentence for people: "NVLink 4: 8 GPUs, 18 links = 450 GB/s each, through 4 NVSwitches".
std::string describe(const LinkFabric& fabric);
// A line per fabric that is uniform, per pair where it is not; C2C links last.
std::vector<std::string> link_lines(const topology::Machine& machine);

}  // namespace fairway::render
