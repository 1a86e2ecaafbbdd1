// Links between a GPU and the CPU other than PCIe: NVLink-C2C, xGMI, NVLink to POWER. A tag in the GPU's box has the
// rate. A line goes up to the socket if only host bridges are between them; otherwise it ends short of it.
#include <algorithm>

#include <fmt/format.h>

#include "render/host_parts.h"
#include "render/layout_links.h"
#include "render/phrases.h"

namespace fairway::render {
namespace {

using topology::DeviceLink;
using topology::LinkKind;
using topology::NodeKind;
using topology::NodeRef;

constexpr double kTagHeight = 13;
constexpr double kAlone = 12;  // the line's length if it does not reach the socket

bool is_cpu(NodeRef node) {
  return node.kind == NodeKind::package || node.kind == NodeKind::numa_node;
}

std::string style_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return "nvlink";
    case LinkKind::xgmi: return "xgmi";
    case LinkKind::c2c: return "c2c";
  }
  return "nvlink";
}

std::string_view name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return "NVLink";
    case LinkKind::xgmi: return "xGMI";
    case LinkKind::c2c: return "C2C";
  }
  return "";
}

// Where a line going straight up from a GPU ends: at the socket, or a little above the GPU.
double line_end(const Scene& scene, const std::vector<PlacedRoot>& roots, double x, double bottom) {
  double nearest = 0;
  bool is_clear = false;
  for (const SceneBox& box : scene.boxes) {
    const bool above = box.area.x < x && x < box.area.right() && box.area.bottom() < bottom;
    if (!above || box.area.bottom() <= nearest) continue;
    nearest = box.area.bottom();
    is_clear = box.style.starts_with("bridge") || box.style.starts_with("package") || box.style.starts_with("numa");
  }
  if (is_clear) {
    for (const PlacedRoot& root : roots) {
      if (root.area.x < x && x < root.area.right()) return root.area.bottom();
    }
  }
  return bottom - kAlone;
}

}  // namespace

void draw_cpu_links(const topology::Machine& machine, const std::vector<PlacedGpu>& gpus,
                    const std::vector<PlacedRoot>& roots, Scene& scene) {
  for (const DeviceLink& link : machine.links) {
    const NodeRef gpu = link.a.kind == NodeKind::gpu ? link.a : link.b;
    const NodeRef cpu = link.a.kind == NodeKind::gpu ? link.b : link.a;
    if (gpu.kind != NodeKind::gpu || !is_cpu(cpu)) continue;
    const auto place =
        std::find_if(gpus.begin(), gpus.end(), [gpu](const PlacedGpu& placed) { return placed.index == gpu.index; });
    if (place == gpus.end()) continue;
    const auto& up = link.active ? link.active : link.count;
    const bool is_reduced = link.active && link.count && *link.active < *link.count;
    const bool has_rate = up && link.gbs_per_link;
    const double gbs = has_rate ? *up * *link.gbs_per_link : 0;
    const std::string text = has_rate ? fmt::format("CPU {}", rate(gbs)) : "CPU";
    const std::string title =
        fmt::format("{} to {}, {} GB/s per direction{}", name_of(link.kind), topology::node_name(machine, cpu),
                    has_rate ? rate(gbs) : "?",
                    is_reduced ? fmt::format("; {} of {} links up", *link.active, *link.count) : std::string());
    const std::string style = style_of(link.kind);
    const double width = text_width(text, kTiny) + 8;
    const Area tag{place->area.right() - width - 4, place->area.y + 4, width, kTagHeight};
    const double x = place->area.right() - 12;
    const double end = line_end(scene, roots, x, place->area.y);
    scene.lines.push_back(
        {{{x, place->area.y}, {x, end}}, style + (is_reduced ? " reduced" : ""), title, is_reduced ? 2.5 : 4.0});
    scene.boxes.push_back({tag, "tag " + style + "-bar", "", title, 3});
    scene.add_text({tag.center().x, tag.y + 9.5}, text, "tiny on-" + style + "-bar", Anchor::middle, place->area);
  }
}

}  // namespace fairway::render
