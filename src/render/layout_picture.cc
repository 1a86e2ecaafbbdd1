// What is around the machines: titles, legend, margins, and the network between them.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "render/layout.h"
#include "render/phrases.h"
#include "topology/edges.h"
#include "topology/fact.h"

namespace fairway::render {
namespace {

using topology::CableEnd;
using topology::Fabric;
using topology::Machine;
using topology::NodeKind;

constexpr double kMargin = 24;
constexpr double kTitle = 54;   // above a machine
constexpr double kLegend = 34;  // below the picture
constexpr double kSwitch = 30;
constexpr double kSwitchGap = 26;
constexpr double kNetworkGap = 40;  // between a machine and the switches
constexpr double kMachineGap = 60;  // between machines of one row
constexpr double kLeastWidth = 320;
constexpr double kMostTitle = 900;  // longer titles are cut

std::string subtitle(const Machine& machine) {
  std::vector<std::string> parts;
  if (machine.product) parts.push_back(*machine.product);
  if (!machine.packages.empty()) parts.push_back(count(machine.packages.size(), "socket"));
  if (!machine.numa_nodes.empty()) parts.push_back(count(machine.numa_nodes.size(), "NUMA node"));
  std::vector<std::string> gpus;
  for (const topology::Gpu& gpu : machine.gpus)
    gpus.push_back(!gpu.model                                  ? "GPU"
                   : gpu.model->find('[') != std::string::npos ? short_gpu_model(*gpu.model)
                                                               : *gpu.model);
  if (!gpus.empty()) parts.push_back(gpus.size() == 1 ? gpus[0] : tally(gpus));
  if (!machine.nics.empty()) parts.push_back(count(machine.nics.size(), "NIC"));
  if (const auto links = topology::unrecorded_gpu_links(machine); !links.empty())
    parts.push_back(fmt::format("{} not recorded", links));
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " · ") + part;
  return out;
}

void add_title(const std::string& title, const std::string& below, double x, double y, double room, Scene& scene) {
  const Area home{x, y, room, kTitle};
  scene.add_text({x, y + 16}, fit_text(title, 17, room), "title", Anchor::start, home);
  scene.add_text({x, y + 34}, fit_text(below, kLegend / 3, room), "subtitle", Anchor::start, home);
}

void add_legend(Scene& scene, double y) {
  struct Entry {
    const char* style;
    const char* text;
    double thick;
  };
  static constexpr Entry kEntries[] = {
      {"pcie", "PCIe, GB/s per direction", 1.4},
      {"pcie reduced", "runs below its best", 1.4},
      {"pcie doubted", "implausible rate: emulated, or read while idle", 1.4},
      {"pcie inferred", "inferred from path classes", 1.4},
      {"nvlink", "NVLink, GB/s per direction", 4},
      {"xgmi", "xGMI, GB/s per direction", 4},
      {"c2c", "C2C, GB/s per direction", 4},
      {"cable", "network, Gb/s", 1.6},
  };
  double x = kMargin;
  double row = y + 14;
  const auto next = [&](const char* text) {
    const double width = 34 + text_width(text, 9.5) + 22;
    if (x + width > scene.width - kMargin && x > kMargin) {
      x = kMargin;
      row += 16;
    }
    scene.add_text({x + 32, row + 3.5}, text, "legend");
    return std::exchange(x, x + width);
  };
  const auto is_drawn = [&scene](std::string_view style) {
    return std::ranges::any_of(scene.lines, [&](const SceneLine& line) { return line.style == style; });
  };
  for (const Entry& entry : kEntries) {
    if (!is_drawn(entry.style)) continue;
    const double at = next(entry.text);
    scene.lines.push_back({{{at, row}, {at + 26, row}}, entry.style, "", entry.thick});
  }
  // The tag of a GPU: its link to its socket.
  const auto tag = std::ranges::find_if(scene.boxes, [](const SceneBox& box) { return box.style.starts_with("tag "); });
  if (tag != scene.boxes.end()) {
    const std::string style = tag->style;
    const Area sample{next("a GPU's link to its socket, GB/s per direction"), row - 6.5, 26, 13};
    scene.boxes.push_back({sample, style, "", "", 3});
    scene.add_text({sample.center().x, sample.y + 9.5}, "CPU", "tiny on-" + style.substr(4), Anchor::middle, sample);
  }
  scene.height = std::max(scene.height, row + kMargin);
}

// Where the cables of one switch meet it.
struct SwitchPlace {
  double from = 0;
  double to = 0;
  std::size_t row = 0;
  std::vector<std::pair<Point, const topology::Cable*>> cables;  // from the machine's edge
};

class NetworkLayout {
 public:
  explicit NetworkLayout(const Fabric& fabric) : fabric_(fabric) {}

  Scene build() {
    place_machines();
    gather();
    const double top = upper_height_ + kNetworkGap;
    for (SwitchPlace& place : switches_) {
      if (!place.cables.empty()) place.row = lanes_.take(place.from, place.to, 12);
    }
    for (SwitchPlace& place : switches_) {
      if (place.cables.empty()) place.row = lanes_.count();
    }
    const double rows = static_cast<double>(std::max<std::size_t>(lanes_.count(), 1));
    network_height_ = rows * (kSwitch + kSwitchGap) - kSwitchGap;
    lower_top_ = top + network_height_ + kNetworkGap;
    paint(top);
    return std::move(scene_);
  }

 private:
  struct Placed {
    HostPicture host;
    double x = 0;
    bool below = false;
  };

  void place_machines() {
    const std::size_t upper = (fabric_.machines.size() + 1) / 2;
    double x[2] = {kMargin, kMargin};
    for (std::size_t i = 0; i < fabric_.machines.size(); ++i) {
      const bool below = i >= upper;
      Placed placed{lay_out(fabric_.machines[i], {.with_cables = true, .node_prefix = fmt::format("m{}-", i)}),
                    x[below], below};
      x[below] += placed.host.scene.width + kMachineGap;
      double& height = below ? lower_height_ : upper_height_;
      height = std::max(height, placed.host.scene.height + kTitle + kMargin);
      machines_.push_back(std::move(placed));
    }
    scene_.width = std::max(std::max(x[0], x[1]) - kMachineGap + kMargin, kLeastWidth);
  }

  // The end of a cable at a machine, and its other end.
  void gather() {
    switches_.resize(fabric_.switches.size());
    for (const topology::Cable& cable : fabric_.cables) {
      const bool a_is_switch = cable.a.is_switch;
      if (a_is_switch == cable.b.is_switch) continue;
      const CableEnd& host = a_is_switch ? cable.b : cable.a;
      SwitchPlace& place = switches_[(a_is_switch ? cable.a : cable.b).index];
      const Placed& machine = machines_[host.machine];
      const auto port = machine.host.ports.find(host.index);
      if (port == machine.host.ports.end()) continue;
      place.cables.push_back({{machine.x + port->second.x, machine.below ? 1.0 : 0.0}, &cable});
    }
    for (std::size_t i = 0; i < switches_.size(); ++i) {
      SwitchPlace& place = switches_[i];
      if (place.cables.empty()) continue;
      place.from = place.to = place.cables[0].first.x;
      for (const auto& [at, cable] : place.cables) {
        place.from = std::min(place.from, at.x);
        place.to = std::max(place.to, at.x);
      }
      const double least = text_width(fabric_.switches[i].name, 11) + 24;
      const double grow = std::max(14.0, (least - (place.to - place.from)) / 2);
      place.from -= grow;
      place.to += grow;
      scene_.width = std::max(scene_.width, place.to + kMargin);
    }
  }

  void paint(double top) {
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      Placed& placed = machines_[i];
      Scene& host = placed.host.scene;
      const double host_height = host.height;
      if (placed.below) host.flip_vertically();
      const double y = placed.below ? lower_top_ : upper_height_ - host_height;
      const double title_y = placed.below ? lower_top_ + host_height + 18 : y - kTitle;
      scene_.append(host, placed.x, y);
      const Machine& machine = fabric_.machines[i];
      add_title(machine.name.empty() ? fmt::format("Machine {}", i) : machine.name, subtitle(machine), placed.x,
                title_y, std::max(host.width, 300.0), scene_);
    }
    double x = kMargin;  // of switches without cables
    for (std::size_t i = 0; i < switches_.size(); ++i) paint_switch(i, top, x);
    paint_trunks(top);
    scene_.height = lower_top_ + lower_height_;
    add_legend(scene_, scene_.height);
  }

  void paint_switch(std::size_t index, double top, double& free_x) {
    SwitchPlace& place = switches_[index];
    const std::string& name = fabric_.switches[index].name;
    if (place.cables.empty()) {
      place.from = free_x;
      place.to = free_x + std::max(90.0, text_width(name, 11) + 24);
      free_x = place.to + 20;
    }
    const Area area{place.from, top + static_cast<double>(place.row) * (kSwitch + kSwitchGap), place.to - place.from,
                    kSwitch};
    scene_.boxes.push_back({area, "netswitch", fmt::format("switch-{}", index),
                            fmt::format("{}\n{}", name, count(place.cables.size(), "cable")), 5});
    scene_.add_text({area.center().x, area.center().y + 4}, fit_text(name, 11, area.width - 8), "name on-netswitch",
                    Anchor::middle);
    for (const auto& [at, cable] : place.cables) {
      const bool from_below = at.y > 0;
      const double edge = from_below ? lower_top_ : upper_height_;
      const double end = from_below ? area.bottom() : area.y;
      const std::string rate_text = cable->gbps ? gigabits(*cable->gbps) : "rate unknown";
      scene_.lines.push_back({{{at.x, edge}, {at.x, end}}, "cable", rate_text, 1.6});
      if (cable->gbps) {
        scene_.add_text({at.x + 4, end + (from_below ? 14.0 : -7.0)}, fmt::format("{}G", rate(*cable->gbps)),
                        "label small");
      }
    }
  }

  // Cables between switches.
  void paint_trunks(double top) {
    for (const topology::Cable& cable : fabric_.cables) {
      if (!cable.a.is_switch || !cable.b.is_switch) continue;
      const SwitchPlace& a = switches_[cable.a.index];
      const SwitchPlace& b = switches_[cable.b.index];
      const auto middle = [&](const SwitchPlace& place) {
        return Point{(place.from + place.to) / 2,
                     top + static_cast<double>(place.row) * (kSwitch + kSwitchGap) + kSwitch / 2};
      };
      scene_.lines.push_back({{middle(a), middle(b)}, "cable", cable.gbps ? gigabits(*cable.gbps) : "", 2.2});
    }
  }

  const Fabric& fabric_;
  Scene scene_;
  std::vector<Placed> machines_;
  std::vector<SwitchPlace> switches_;
  Lanes lanes_;
  double upper_height_ = 0;
  double lower_height_ = kMargin;
  double network_height_ = 0;
  double lower_top_ = 0;
};

}  // namespace

std::string node_key(topology::NodeRef node) {
  return fmt::format("{}-{}", topology::to_string(node.kind), node.index);
}

Scene picture(const Machine& machine) {
  const HostPicture host = lay_out(machine);
  Scene scene;
  const double titles = std::max(text_width(machine.name, 17 * 1.1), text_width(subtitle(machine), 11));
  scene.width = std::max(host.scene.width, std::clamp(titles, kLeastWidth, kMostTitle)) + 2 * kMargin;
  add_title(machine.name.empty() ? "This machine" : machine.name, subtitle(machine), kMargin, kMargin,
            scene.width - 2 * kMargin, scene);
  scene.append(host.scene, kMargin, kMargin + kTitle);
  scene.height = kMargin + kTitle + host.scene.height + 18;
  add_legend(scene, scene.height);
  return scene;
}

Scene picture(const Fabric& fabric) {
  return NetworkLayout(fabric).build();
}

}  // namespace fairway::render
