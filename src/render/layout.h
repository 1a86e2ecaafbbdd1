#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "render/scene.h"
#include "topology/fabric.h"

namespace fairway::render {

// The picture of one machine: sockets on top, bridges and switches below them in bands, GPUs in one row, and their
// links below that.
struct HostPicture {
  Scene scene;
  std::map<std::uint32_t, Point> ports;  // where a cable leaves the machine's edge, by NIC index
};

struct LayoutOptions {
  bool with_cables = false;  // leaves room beside the NICs and leads a line from each to the lower edge
  std::string node_prefix;   // before the names of nodes, if several machines share a picture: "m1-"
};

HostPicture lay_out(const topology::Machine& machine, const LayoutOptions& options = {});

// With title, legend and margins.
Scene picture(const topology::Machine& machine);
// Machines above and below the switches between them.
Scene picture(const topology::Fabric& fabric);

// "gpu-3": the name of a node in a picture and in its page.
std::string node_key(topology::NodeRef node);

}  // namespace fairway::render
