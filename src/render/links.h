#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace fairway::render {

// All device links of one kind, to be drawn and described: through switches, or pair by pair.
struct LinkFabric {
  topology::LinkKind kind = topology::LinkKind::nvlink;
  std::string name;                           // "NVLink 4", "xGMI"
  std::vector<std::uint32_t> gpus;            // those with such links, by index
  std::vector<topology::DeviceLink> pairs;    // GPU to GPU
  std::vector<std::uint32_t> switches;        // NVSwitches they pass; empty if direct
  bool switches_seen = false;                 // false: they are inferred, and one stands for all
  std::optional<std::uint32_t> links_of_gpu;  // of each GPU; none if they differ
  std::optional<double> gbs_of_gpu;           // GB/s per direction
  std::optional<double> gbs_per_link;
  bool uniform = false;   // every GPU has the same links to every other, or to the switches
  bool degraded = false;  // some links are not up
};
// In the order nvlink, xgmi; without C2C, which is not between GPUs.
std::vector<LinkFabric> link_fabrics(const topology::Machine& machine);

// One sentence for people: "NVLink 4: 8 GPUs, 18 links = 450 GB/s each, through 4 NVSwitches".
std::string describe(const LinkFabric& fabric);
// A line for each uniform fabric, or for each pair of others; C2C links last.
std::vector<std::string> link_lines(const topology::Machine& machine);

}  // namespace fairway::render
