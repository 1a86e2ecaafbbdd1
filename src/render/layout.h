#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "render/scene.h"
#include "topology/machine.h"

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

// Bytes on their way, for a picture of the machine.
struct Stream {
  topology::NodeRef from;
  topology::NodeRef to;
  bool over_gpu_links = false;  // NVLink or xGMI, not the PCIe tree
  bool returns = false;         // a loop: out and in again
  bool slow = false;            // in the colour of faults
  std::string label;            // "24.4", beside where it begins
  std::string title;            // shown by a browser on hovering
};

// Paints streams over the picture of their machine, each along the boxes that it crosses, and adds `legend` below. One
// whose ends are not drawn is left out. Returns how many were painted.
std::size_t add_streams(const topology::Machine& machine, std::span<const Stream> streams, const std::string& legend,
                        Scene& scene);

}  // namespace fairway::render
