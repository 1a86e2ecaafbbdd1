#pragma once

#include <vector>

#include "render/outline.h"
#include "render/scene.h"

namespace fairway::render {

struct PlacedRoot {
  const Box* box;
  Area area;
};
struct PlacedGpu {
  std::uint32_t index;  // into Machine::gpus
  Area area;
};

// Links between sockets: straight between neighbours.
void draw_socket_links(const topology::Machine& machine, const std::vector<PlacedRoot>& roots, Scene& scene);

// NVLink and xGMI below the row of GPUs; makes the scene higher. One bar if all GPUs are linked alike or through
// switches, else a track for each linked pair.
void draw_device_links(const topology::Machine& machine, const std::vector<PlacedGpu>& gpus, Scene& scene);

// Links between GPUs and CPUs other than PCIe; call it once all above the GPUs is drawn.
void draw_cpu_links(const topology::Machine& machine, const std::vector<PlacedGpu>& gpus,
                    const std::vector<PlacedRoot>& roots, Scene& scene);

}  // namespace fairway::render
