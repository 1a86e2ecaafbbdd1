#pragma once

#include <span>
#include <string>

#include "render/scene.h"
#include "topology/machine.h"

namespace fairway::render {

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
