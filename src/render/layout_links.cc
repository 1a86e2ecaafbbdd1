#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "render/layout.h"
#include "render/layout_parts.h"
#include "render/links.h"
#include "render/phrases.h"

namespace fairway::render {
namespace {

using topology::DeviceLink;
using topology::LinkKind;
using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;

constexpr double kAboveBar = 34;
constexpr double kBar = 30;
constexpr double kTrackPitch = 19;
constexpr double kLabel = 9.5;

const PlacedGpu* find(const std::vector<PlacedGpu>& gpus, topology::NodeRef node) {
  for (const PlacedGpu& gpu : gpus) {
    if (node.kind == NodeKind::gpu && gpu.index == node.index) return &gpu;
  }
  return nullptr;
}

struct Sum {
  double gbs = 0;
  double full_gbs = 0;
  std::uint32_t links = 0;
  std::uint32_t full_links = 0;
};

// The links of this kind of each GPU.
std::map<std::uint32_t, Sum> sums(const Machine& machine, topology::LinkKind kind) {
  std::map<std::uint32_t, Sum> out;
  for (const DeviceLink& link : machine.links) {
    if (link.kind != kind) continue;
    const std::uint32_t all = link.count.value_or(0);
    const std::uint32_t up = link.active.value_or(all);
    for (const topology::NodeRef end : {link.a, link.b}) {
      if (end.kind != NodeKind::gpu) continue;
      Sum& sum = out[end.index];
      sum.links += up;
      sum.full_links += all;
      sum.gbs += up * link.gbs_per_link.value_or(0);
      sum.full_gbs += all * link.gbs_per_link.value_or(0);
    }
  }
  return out;
}

void draw_bar(const Machine& machine, const LinkFabric& fabric, const std::vector<PlacedGpu>& gpus, Scene& scene) {
  double left = scene.width;
  double right = 0;
  double top = 0;
  const auto totals = sums(machine, fabric.kind);
  for (const std::uint32_t index : fabric.gpus) {
    const PlacedGpu* gpu = find(gpus, {NodeKind::gpu, index});
    if (gpu == nullptr) continue;
    left = std::min(left, gpu->area.x);
    right = std::max(right, gpu->area.right());
    top = gpu->area.bottom() + kAboveBar;
  }
  if (right <= left) return;
  const std::string style = fabric.kind == topology::LinkKind::xgmi ? "xgmi" : "nvlink";
  for (const std::uint32_t index : fabric.gpus) {
    const PlacedGpu* gpu = find(gpus, {NodeKind::gpu, index});
    const auto total = totals.find(index);
    if (gpu == nullptr || total == totals.end()) continue;
    const Sum& sum = total->second;
    const double x = gpu->area.center().x;
    const bool reduced = sum.links < sum.full_links;
    const std::string title = fmt::format("{} of {} {} up, {} GB/s per direction", sum.links, sum.full_links,
                                          fabric.name + " links", sum.gbs > 0 ? rate(sum.gbs) : "?");
    scene.lines.push_back({{{x, gpu->area.bottom()}, {x, top}}, style + (reduced ? " reduced" : ""), title, 4});
    const std::string links = count(sum.links, "link");
    const std::string label = sum.gbs > 0 ? rate(sum.gbs) : links;
    scene.add_text({x + 6, top - 12}, reduced && sum.gbs > 0 ? fmt::format("{}/{}", label, rate(sum.full_gbs)) : label,
                   reduced ? "label warn" : "label");
  }
  const Area bar{left, top, right - left, kBar};
  scene.boxes.push_back({bar, style + "-bar", "", describe(fabric), 6});
  double room = bar.width - 20;
  double text_at = bar.x + 12;
  const std::size_t switches = fabric.switches.size();
  if (switches > 1) {
    // The switches are drawn in the bar, behind the sentence.
    const double pitch = std::min(34.0, bar.width * 0.45 / static_cast<double>(switches));
    const double start = bar.right() - pitch * static_cast<double>(switches) - 6;
    for (std::size_t i = 0; i < switches; ++i) {
      const topology::NodeRef node{NodeKind::nv_switch, fabric.switches[i]};
      const Area chip{start + static_cast<double>(i) * pitch + 2, bar.y + 6, pitch - 4, bar.height - 12};
      scene.boxes.push_back({chip, "nvswitch", node_key(node), topology::node_name(machine, node), 3});
    }
    room -= bar.right() - start;
  }
  const std::string whole = describe(fabric);
  const std::size_t comma = whole.find(", ");
  scene.add_text(
      {text_at, bar.center().y + 4},
      fit_choice({whole, whole.substr(0, comma == std::string::npos ? whole.size() : comma), fabric.name}, kText, room),
      "name on-" + style + "-bar", Anchor::start, bar);
  scene.height = std::max(scene.height, bar.bottom());
}

// One GPU-GPU link as a track: down from one GPU, along, up to the other.
struct Track {
  const DeviceLink* link;
  const PlacedGpu* left;
  const PlacedGpu* right;
  std::size_t lane = 0;
};

std::vector<Track> tracks_of(const LinkFabric& fabric, const std::vector<PlacedGpu>& gpus) {
  std::vector<Track> tracks;
  for (const DeviceLink& link : fabric.pairs) {
    const PlacedGpu* a = find(gpus, link.a);
    const PlacedGpu* b = find(gpus, link.b);
    if (a == nullptr || b == nullptr) continue;
    if (b->area.x < a->area.x) std::swap(a, b);
    tracks.push_back({&link, a, b});
  }
  std::ranges::stable_sort(tracks, [](const Track& a, const Track& b) {
    return a.right->area.x - a.left->area.x < b.right->area.x - b.left->area.x;
  });
  return tracks;
}

// Where the tracks leave a GPU's lower edge. Going right, the furthest leaves first, and going left last: so no riser
// crosses a shorter track of the same GPU.
double riser(const PlacedGpu& gpu, const Track& track, const std::vector<Track>& tracks) {
  std::vector<const Track*> own;
  for (const Track& other : tracks) {
    if (other.left == &gpu || other.right == &gpu) own.push_back(&other);
  }
  const auto other_end = [&](const Track* t) { return (t->left == &gpu ? t->right : t->left)->area.x; };
  std::ranges::stable_sort(own, [&](const Track* a, const Track* b) {
    const bool a_left = a->right == &gpu;
    const bool b_left = b->right == &gpu;
    if (a_left != b_left) return a_left;
    return other_end(a) > other_end(b);
  });
  const auto place = std::ranges::find(own, &track) - own.begin();
  return gpu.area.x + gpu.area.width * (static_cast<double>(place) + 1) / (static_cast<double>(own.size()) + 1);
}

void draw_tracks(const LinkFabric& fabric, const std::vector<PlacedGpu>& gpus, Scene& scene) {
  std::vector<Track> tracks = tracks_of(fabric, gpus);
  if (tracks.empty()) return;
  Lanes lanes;
  for (Track& track : tracks) {
    track.lane = lanes.take(track.left->area.center().x, track.right->area.center().x, 0);
  }
  const double top = tracks[0].left->area.bottom();
  const std::string style = fabric.kind == topology::LinkKind::xgmi ? "xgmi" : "nvlink";
  for (const Track& track : tracks) {
    const double y = top + 24 + static_cast<double>(track.lane) * kTrackPitch;
    const double from = riser(*track.left, track, tracks);
    const double to = riser(*track.right, track, tracks);
    const std::uint32_t all = track.link->count.value_or(0);
    const std::uint32_t up = track.link->active.value_or(all);
    const bool reduced = up < all;
    const auto& each = track.link->gbs_per_link;
    const double room = std::abs(to - from) - 12;
    std::string label = up > 0 ? fmt::format("{}x", up) : "?";
    std::string title = fmt::format("{}: {}", fabric.name, count(up, "link"));
    if (each && up > 0) {
      label = up > 1 ? fit_choice({fmt::format("{} x {} = {}", up, rate(*each), rate(*each * up)), rate(*each * up)},
                                  kLabel, room)
                     : rate(*each);
      title += fmt::format(", {} GB/s per direction", rate(*each * up));
    }
    if (reduced) title += fmt::format("; {} of {} up", up, all);
    scene.lines.push_back({{{from, top}, {from, y}, {to, y}, {to, top}},
                           style + (reduced ? " reduced" : ""),
                           title,
                           1.4 + 1.1 * std::min<double>(up, 4)});
    // Labels of neighbouring tracks are staggered, each on its own background.
    static constexpr double kShares[] = {0.5, 0.38, 0.62};
    const Point at{from + (to - from) * kShares[track.lane % 3], y};
    const double width = text_width(label, kLabel) + 4;
    scene.boxes.push_back({{at.x - width / 2, y - 6, width, 12}, "ground", "", "", 2});
    scene.add_text({at.x, y + 3.5}, label, reduced ? "label warn" : "label", Anchor::middle);
    scene.height = std::max(scene.height, y + 14);
  }
}

}  // namespace

void draw_socket_links(const Machine& machine, const std::vector<PlacedRoot>& roots, Scene& scene) {
  for (std::size_t i = 0; i + 1 < roots.size(); ++i) {
    const bool are_sockets = roots[i].box->kind == BoxKind::package && roots[i + 1].box->kind == BoxKind::package;
    const bool are_nodes = roots[i].box->kind == BoxKind::numa && roots[i + 1].box->kind == BoxKind::numa;
    if (!are_sockets && !are_nodes) continue;
    const double y = roots[i].area.center().y;
    const topology::SocketLink* found = nullptr;
    for (const topology::SocketLink& link : machine.socket_links) {
      const auto& a = machine.packages[link.a.index];
      const auto& b = machine.packages[link.b.index];
      const std::string first = fmt::format("Socket {}", std::min(a.os_index, b.os_index));
      const std::string second = fmt::format("Socket {}", std::max(a.os_index, b.os_index));
      const auto& left = roots[i].box->name;
      const auto& right = roots[i + 1].box->name;
      if ((left == first && right == second) || (left == second && right == first)) found = &link;
    }
    std::string label;
    std::string title = "the link between the sockets; its rate is unknown";
    if (found != nullptr) {
      label = found->kind.value_or("");
      const double gbs = found->gbs_per_link.value_or(0) * found->links.value_or(1);
      if (gbs > 0) title = fmt::format("{}, {} GB/s per direction", label, rate(gbs));
      if (gbs > 0)
        scene.add_text({(roots[i].area.right() + roots[i + 1].area.x) / 2, y + 13}, rate(gbs), "label", Anchor::middle);
    }
    scene.lines.push_back({{{roots[i].area.right(), y}, {roots[i + 1].area.x, y}}, "socket", title, 4});
    scene.add_text({(roots[i].area.right() + roots[i + 1].area.x) / 2, y - 6}, label, "label", Anchor::middle);
  }
}

void draw_device_links(const Machine& machine, const std::vector<PlacedGpu>& gpus, Scene& scene) {
  for (const LinkFabric& fabric : link_fabrics(machine)) {
    if (fabric.uniform || !fabric.switches.empty()) {
      draw_bar(machine, fabric, gpus, scene);
    } else {
      draw_tracks(fabric, gpus, scene);
    }
  }
}

// Links between a GPU and the CPU other than PCIe: NVLink-C2C, xGMI, NVLink to POWER. A tag in the GPU's box has the
// rate. A line goes up to the socket if only host bridges are between them; otherwise it ends short of it.

namespace {

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
    const auto place = std::ranges::find(gpus, gpu.index, &PlacedGpu::index);
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
