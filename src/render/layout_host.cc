// The layout of one machine. A hub (socket, NUMA node, host bridge, switch) is a band as wide as all that is below it,
// so that every line down is straight and none crosses another.
#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "render/layout.h"
#include "render/layout_parts.h"
#include "render/outline.h"
#include "render/phrases.h"

namespace fairway::render {
namespace {

constexpr double kBand = 26;
constexpr double kTopBand = 44;
constexpr double kDrop = 26;     // between a band and what hangs below it
constexpr double kGap = 12;      // between neighbours
constexpr double kRootGap = 54;  // between sockets, where the link between them is drawn
constexpr double kNicGap = 7;
constexpr double kCablePitch = 6;
constexpr std::size_t kNicsPerColumn = 8;
constexpr double kGpuDrop = 30;  // above the row of GPUs

bool is_hub(BoxKind kind) {
  return kind != BoxKind::gpu && kind != BoxKind::nic && kind != BoxKind::nv_switch;
}

struct Hub;

// One trunk with the devices on it, and above the GPUs the switches that only NICs hang on.
struct Column {
  std::vector<const Box*> nics;
  std::vector<Hub> switches;
  std::vector<const Box*> gpus;
  std::string others;
  double width = 0;
};

// A column or a hub below another, by its place in that one's list.
struct Part {
  bool is_hub = false;
  std::size_t index = 0;
};

struct Hub {
  const Box* box = nullptr;
  std::vector<Column> columns;
  std::vector<Hub> hubs;
  std::vector<Part> parts;  // both, from left to right
  double width = 0;
  bool stacked = false;  // the hubs are below the one column, not beside it
};

// Widths of neighbours.
struct Pitch {
  double nic = kNicWidth;
  double branch = kBranch;
  double root_gap = kRootGap;
};
constexpr Pitch kRoomy;
constexpr Pitch kTight{.nic = 106, .branch = 30, .root_gap = 40};
constexpr double kMostWidth = 1552;  // of a machine with eight GPUs on a page of 1600 pixels

class HostLayout {
 public:
  HostLayout(const topology::Machine& machine, const LayoutOptions& options, const Pitch& pitch)
      : machine_(machine), options_(options), pitch_(pitch), outline_(outline(machine)) {}

  HostPicture build() {
    std::vector<Hub> roots;
    for (const Box& box : outline_.roots) {
      // Storage of unknown NUMA node gets no column.
      const bool is_aside = box.kind == BoxKind::machine && outline_.roots.size() > 1;
      if (!is_aside || has_gpus_or_nics(box)) roots.push_back(measure(box));
    }
    in_gpu_order(roots, [this](const Hub& root) { return first_gpu(root); });
    for (const Hub& root : roots) lowest(root, 0, true);
    double x = 0;
    for (const Hub& root : roots) {
      place(root, x, 0, true);
      x += root.width + pitch_.root_gap;
    }
    Scene& scene = picture_.scene;
    scene.width = std::max(0.0, x - pitch_.root_gap);
    scene.height = std::max(lowest_, gpus_.empty() ? 0.0 : gpu_row_ + kGpuHeight);
    draw_socket_links(machine_, roots_, scene);
    draw_cpu_links(machine_, gpus_, roots_, scene);
    draw_device_links(machine_, gpus_, scene);
    lead_cables();
    return std::move(picture_);
  }

 private:
  static double gpus_width(std::size_t n) {
    return n == 0 ? 0 : static_cast<double>(n) * kGpuWidth + static_cast<double>(n - 1) * kGap;
  }

  // Ports of one hub that are not for bulk traffic share a box: cloud machines have many.
  std::vector<const Box*> fold_muted(std::vector<const Box*> nics) {
    const auto muted = std::stable_partition(nics.begin(), nics.end(), [](const Box* nic) { return !nic->muted; });
    const auto count_muted = static_cast<std::size_t>(nics.end() - muted);
    if (count_muted < 2) return nics;
    Box folded = **muted;
    std::vector<std::string> names;
    for (auto nic = muted; nic != nics.end(); ++nic) names.push_back((*nic)->name);
    folded.node = {};
    folded.name = count(count_muted, "other NIC");
    const bool any_software =
        std::any_of(muted, nics.end(), [](const Box* nic) { return nic->place == "software RDMA"; });
    folded.place = any_software ? "no RDMA in hardware" : "no RDMA";
    folded.model = "";
    folded.link_words = fold_names(names);
    folded.gbs.forget();
    nics.erase(muted, nics.end());
    nics.push_back(&folded_.emplace_back(std::move(folded)));
    return nics;
  }

  [[nodiscard]] std::uint32_t number(const Box* gpu) const { return machine_.gpus[gpu->node.index].ordinal; }

  [[nodiscard]] std::uint32_t first_gpu(const Column& column) const {
    std::uint32_t least = kNoGpu;
    for (const Box* gpu : column.gpus) least = std::min(least, number(gpu));
    return least;
  }
  [[nodiscard]] std::uint32_t first_gpu(const Hub& hub) const {
    std::uint32_t least = kNoGpu;
    for (const Column& column : hub.columns) least = std::min(least, first_gpu(column));
    for (const Hub& below : hub.hubs) least = std::min(least, first_gpu(below));
    return least;
  }

  // GPUs directly below a hub share one bus, unless GPUs below other hubs come between them.
  void part_columns(Hub& hub) const {
    if (hub.columns.size() != 1) return;
    auto& column = hub.columns[0];
    if (column.gpus.size() < 2 || !column.nics.empty() || !column.switches.empty() || !column.others.empty()) return;
    const auto between = [&](const Hub& below) {
      const auto at = first_gpu(below);
      return at != kNoGpu && at > number(column.gpus.front()) && at < number(column.gpus.back());
    };
    if (std::ranges::none_of(hub.hubs, between)) return;
    std::vector<Column> apart;
    for (const Box* gpu : column.gpus) {
      apart.emplace_back();
      apart.back().gpus.push_back(gpu);
    }
    hub.columns = std::move(apart);
  }

  // NVSwitches are drawn in their fabric's bar; a hub that leads to nothing else is not drawn.
  static bool has_devices(const Box& box) {
    if (!box.others.empty()) return true;
    return std::ranges::any_of(box.children, [](const Box& child) {
      return is_hub(child.kind) ? has_devices(child) : child.kind != BoxKind::nv_switch;
    });
  }

  static bool has_gpus_or_nics(const Box& box) {
    return box.kind == BoxKind::gpu || box.kind == BoxKind::nic || std::ranges::any_of(box.children, has_gpus_or_nics);
  }

  static double least_width(const Box& box) {
    if (box.kind == BoxKind::host_bridge || box.kind == BoxKind::pci_switch) return 92;
    constexpr double kMost = 300;
    return std::clamp(std::max(text_width(box.place, 10), text_width(box.name, 12.5 * kBold)) + 20, 120.0, kMost);
  }

  static bool has_gpus(const Box& box) {
    return box.kind == BoxKind::gpu || std::ranges::any_of(box.children, has_gpus);
  }

  Hub measure(const Box& box) {
    Hub hub;
    hub.box = &box;
    Column first;
    const bool leads_to_gpus = has_gpus(box);
    for (const Box& child : box.children) {
      if (is_hub(child.kind)) {
        if (!has_devices(child)) continue;
        Hub below = measure(child);
        const bool fits_on_trunk =
            child.kind == BoxKind::pci_switch && leads_to_gpus && !has_gpus(child) && below.hubs.empty();
        (fits_on_trunk ? first.switches : hub.hubs).push_back(std::move(below));
      } else if (child.kind == BoxKind::gpu) {
        first.gpus.push_back(&child);
      } else if (child.kind == BoxKind::nic) {
        first.nics.push_back(&child);
      }
    }
    first.others = box.others;
    // Many NICs on one trunk would make the picture too high: use several trunks.
    const std::vector<const Box*> nics = fold_muted(std::move(first.nics));
    first.nics.clear();
    const std::size_t columns = (nics.size() + kNicsPerColumn - 1) / kNicsPerColumn;
    const std::size_t each = columns == 0 ? 0 : (nics.size() + columns - 1) / columns;
    for (std::size_t i = 0; i < nics.size(); ++i) {
      if (i > 0 && i % each == 0) {
        hub.columns.push_back(std::move(first));
        first = {};
      }
      first.nics.push_back(nics[i]);
    }
    std::ranges::stable_sort(first.gpus, [this](const Box* a, const Box* b) { return number(a) < number(b); });
    if (!first.nics.empty() || !first.gpus.empty() || !first.others.empty() || !first.switches.empty())
      hub.columns.push_back(std::move(first));
    in_gpu_order(hub.hubs, [this](const Hub& below) { return first_gpu(below); });
    part_columns(hub);
    for (Column& column : hub.columns) {
      column.width = std::max({column.nics.empty() ? 0 : pitch_.branch + pitch_.nic, gpus_width(column.gpus.size()),
                               column.others.empty() ? 0 : text_width("+ " + column.others, kSmall)});
      for (const Hub& below : column.switches) column.width = std::max(column.width, pitch_.branch + below.width);
      if (options_.with_cables) column.width += kCablePitch * static_cast<double>(column.nics.size());
      hub.width += column.width;
    }
    hub.stacked = hub.columns.size() == 1 && !hub.hubs.empty() && hub.columns[0].gpus.empty();
    if (hub.stacked) {
      hub.hubs[0].width = std::max(hub.hubs[0].width, hub.columns[0].width);
      hub.width = 0;
    }
    for (const Hub& below : hub.hubs) hub.width += below.width;
    const std::size_t parts = (hub.stacked ? 0 : hub.columns.size()) + hub.hubs.size();
    if (parts > 1) hub.width += kGap * static_cast<double>(parts - 1);
    for (std::size_t i = 0; i < hub.columns.size(); ++i) hub.parts.push_back({false, i});
    for (std::size_t i = 0; i < hub.hubs.size(); ++i) hub.parts.push_back({true, i});
    in_gpu_order(hub.parts, [&](const Part& part) {
      return part.is_hub ? first_gpu(hub.hubs[part.index]) : first_gpu(hub.columns[part.index]);
    });
    hub.width = std::max(hub.width, least_width(box));
    return hub;
  }

  static double band_height(const Hub& hub, bool is_root) {
    return is_root ? kTopBand : hub.box->kind == BoxKind::host_bridge ? 20 : kBand;
  }
  // Host bridges are part of the socket: directly below it.
  static double drop_above(const Hub& hub) { return hub.box->kind == BoxKind::host_bridge ? 8 : kDrop; }

  static double column_height(const Column& column) {
    double height = static_cast<double>(column.nics.size()) * (kNicHeight + kNicGap);
    for (const Hub& below : column.switches) height += switch_height(below) + kNicGap;
    if (!column.others.empty()) height += 14;
    return height;
  }

  static double switch_height(const Hub& hub) {
    double height = 0;
    for (const Column& column : hub.columns) height = std::max(height, 14 + column_height(column));
    return kBand + height;
  }

  static double top_of_hubs(const Hub& hub, const Hub& below, double bottom) {
    return bottom + (hub.stacked ? 14 + column_height(hub.columns[0]) + 12 : drop_above(below));
  }

  void lowest(const Hub& hub, double y, bool is_root) {
    const double bottom = y + band_height(hub, is_root);
    lowest_ = std::max(lowest_, bottom);
    for (const Column& column : hub.columns) {
      const double below = bottom + 14 + column_height(column);
      lowest_ = std::max(lowest_, below);
      if (!column.gpus.empty()) {
        const double bus = column.gpus.size() > 1 ? 16 : 0;
        gpu_row_ = std::max(gpu_row_, below + kGpuDrop - 8 + bus);
      }
    }
    for (const Hub& below : hub.hubs) lowest(below, top_of_hubs(hub, below, bottom), false);
  }

  void place(const Hub& hub, double x, double y, bool is_root) {
    const Area band{x, y, hub.width, band_height(hub, is_root)};
    draw_band(*hub.box, band, is_root, options_.node_prefix, picture_.scene);
    if (is_root) roots_.push_back({hub.box, band});
    double at = x;
    for (const Part& part : hub.parts) {
      if (!part.is_hub) {
        place_column(hub.columns[part.index], at, band.bottom());
        if (!hub.stacked) at += hub.columns[part.index].width + kGap;
        continue;
      }
      const Hub& below = hub.hubs[part.index];
      const double top = top_of_hubs(hub, below, band.bottom());
      const bool on_trunk = hub.stacked && part.index == 0;
      draw_drop(*below.box, {on_trunk ? at + kTrunk : at + below.width / 2, band.bottom()}, top, picture_.scene);
      place(below, at, top, false);
      at += below.width + kGap;
    }
  }

  void place_column(const Column& column, double x, double top) {
    Scene& scene = picture_.scene;
    const bool centered = column.nics.empty() && column.switches.empty() && column.gpus.size() == 1;
    const double trunk = x + (centered ? column.width / 2 : kTrunk);
    double y = top + 14;
    double trunk_end = top;
    for (const Box* nic : column.nics) {
      const Area area{x + pitch_.branch, y, pitch_.nic, kNicHeight};
      draw_nic(*nic, area, trunk, options_.node_prefix, scene);
      if (nic->node.kind == topology::NodeKind::nic)
        nic_places_.push_back({nic->node.index, {area.right(), area.center().y}, x + column.width + kGap / 2});
      trunk_end = area.center().y;
      y += kNicHeight + kNicGap;
    }
    for (const Hub& below : column.switches) {
      const Point end{x + pitch_.branch, y + kBand / 2};
      draw_branch(*below.box, {trunk, end.y}, end, scene);
      place(below, x + pitch_.branch, y, false);
      trunk_end = end.y;
      y += switch_height(below) + kNicGap;
    }
    if (!column.others.empty()) {
      const double left = column.nics.empty() ? trunk + (column.gpus.empty() ? -kTrunk : 6) : x + pitch_.branch;
      scene.add_text({left, y + 8}, "+ " + column.others, "small faint");
    }
    place_gpus(column, x, trunk, trunk_end);
    if (trunk_end > top) scene.lines.push_back({{{trunk, top}, {trunk, trunk_end}}, trunk_style(column), "", 1.4});
  }

  // The GPUs of a column in the row of all GPUs. One hangs on the trunk by a line of its own; several hang on a bus, to
  // which the trunk is then led.
  void place_gpus(const Column& column, double x, double trunk, double& trunk_end) {
    if (column.gpus.empty()) return;
    Scene& scene = picture_.scene;
    const bool has_bus = column.gpus.size() > 1;
    const bool has_nics = !column.nics.empty() || !column.switches.empty();
    const double wide = has_bus || !has_nics ? kGpuWidth : std::max(kGpuWidth, pitch_.branch + pitch_.nic);
    if (has_bus) trunk_end = gpu_row_ - kGpuDrop + 4;
    double left = x;
    double bus_end = trunk;
    for (const Box* gpu : column.gpus) {
      const Area area{left, gpu_row_, wide, kGpuHeight};
      bus_end = has_bus ? area.center().x : trunk;
      draw_gpu(*gpu, area, {bus_end, trunk_end}, options_.node_prefix, scene);
      gpus_.push_back({gpu->node.index, area});
      left += wide + kGap;
    }
    if (has_bus) scene.lines.push_back({{{trunk, trunk_end}, {bus_end, trunk_end}}, trunk_style(column), "", 1.4});
  }

  static std::string trunk_style(const Column& column) {
    if (column.nics.empty() && column.gpus.empty())
      return column.switches.empty() ? "pcie" : line_style(*column.switches[0].box);
    const auto inferred = [](const Box* box) { return box->inferred; };
    const bool all = std::ranges::all_of(column.nics, inferred) && std::ranges::all_of(column.gpus, inferred);
    return all ? "pcie inferred" : "pcie";
  }

  // From each NIC to the lower edge, down the gap beside its column.
  void lead_cables() {
    if (!options_.with_cables) return;
    Scene& scene = picture_.scene;
    std::map<double, double> used;  // by gap: how far its lines have come
    for (const NicPlace& nic : nic_places_) {
      const double x = nic.gutter - used[nic.gutter] - 2;
      used[nic.gutter] += kCablePitch;
      scene.lines.push_back({{nic.port, {x, nic.port.y}, {x, scene.height}}, "cable", "", 1.4});
      picture_.ports[nic.index] = {x, scene.height};
      scene.width = std::max(scene.width, x);
    }
  }

  struct NicPlace {
    std::uint32_t index;
    Point port;
    double gutter;
  };

  const topology::Machine& machine_;
  const LayoutOptions& options_;
  Pitch pitch_;
  Outline outline_;
  std::deque<Box> folded_;  // a deque, since hubs point at its boxes
  HostPicture picture_;
  std::vector<PlacedRoot> roots_;
  std::vector<PlacedGpu> gpus_;
  std::vector<NicPlace> nic_places_;
  double gpu_row_ = 0;
  double lowest_ = 0;
};

}  // namespace

HostPicture lay_out(const topology::Machine& machine, const LayoutOptions& options) {
  auto out = HostLayout(machine, options, kRoomy).build();
  if (out.scene.width <= kMostWidth) return out;
  return HostLayout(machine, options, kTight).build();
}

}  // namespace fairway::render
