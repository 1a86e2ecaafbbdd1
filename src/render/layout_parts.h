#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "render/outline.h"
#include "render/scene.h"

// The parts of a machine's picture, each drawn into the place that the layout chose. Sizes in pixels.
namespace fairway::render {

inline constexpr double kGpuWidth = 106;
inline constexpr double kGpuHeight = 52;
inline constexpr double kNicWidth = 126;
inline constexpr double kNicHeight = 31;
inline constexpr double kBranch = 38;  // from a trunk to a NIC; its rate is drawn on it
inline constexpr double kTrunk = 8;    // of the trunk from its column's left edge
inline constexpr double kText = 11;    // font sizes
inline constexpr double kSmall = 9;
inline constexpr double kTiny = 8.5;
inline constexpr double kBold = 1.1;  // how much wider bold text runs

// A socket, NUMA node, host bridge or switch. A root's band has room for two lines.
void draw_band(const Box& box, const Area& band, bool is_root, const std::string& prefix, Scene& scene);
// The link above a hub, from `from` straight down to `bottom`, with its rate.
void draw_drop(const Box& below, Point from, double bottom, Scene& scene);
// The link from a trunk sideways to a device or switch, with its rate.
void draw_branch(const Box& box, Point from, Point to, Scene& scene);
// A NIC with its ports on the right, and the short line that joins it to the trunk.
void draw_nic(const Box& nic, const Area& area, double trunk, const std::string& prefix, Scene& scene);
// A GPU; its rate is drawn beside the end of its line, which comes down from `from`.
void draw_gpu(const Box& gpu, const Area& area, Point from, const std::string& prefix, Scene& scene);

// "pcie", "pcie reduced", "pcie inferred".
std::string line_style(const Box& box);
// "PCIe Gen5 x16, 63 GB/s per direction"
std::string line_title(const Box& box);

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

inline constexpr std::uint32_t kNoGpu = 0xffffffff;

// Orders the items that lead to GPUs by GPU number; the others keep their places. `first` gives the smallest GPU number
// below an item, or kNoGpu.
template <class Item, class First>
void in_gpu_order(std::vector<Item>& items, First first) {
  std::vector<std::size_t> places;
  std::vector<Item> leading;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (first(items[i]) == kNoGpu) continue;
    places.push_back(i);
    leading.push_back(std::move(items[i]));
  }
  std::ranges::stable_sort(leading, [&](const Item& a, const Item& b) { return first(a) < first(b); });
  for (std::size_t i = 0; i < places.size(); ++i) items[places[i]] = std::move(leading[i]);
}

}  // namespace fairway::render
