#include <fmt/format.h>

#include "render/layout.h"
#include "render/layout_parts.h"
#include "render/phrases.h"

namespace fairway::render {
namespace {

std::string state_classes(const Box& box) {
  std::string out;
  if (box.health == Health::down) out += " down";
  if (box.inferred) out += " inferred";
  if (box.muted) out += " muted";
  return out;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    if (!part.empty()) out += (out.empty() ? "" : " · ") + part;
  }
  return out;
}

std::string key_of(const Box& box, const std::string& prefix) {
  return box.node.kind == topology::NodeKind::none ? "" : prefix + node_key(box.node);
}

std::string title_of(const Box& box) {
  std::string out = joined({box.name, box.model, box.place});
  if (box.gbs || !box.link_words.empty()) out += "\n" + line_title(box);
  for (const BondPort& port : box.ports) {
    out += fmt::format("\nbond leg {}{}{}", port.name, port.gbps ? ", " + gigabits(*port.gbps) : "",
                       !port.up   ? ""
                       : *port.up ? ", up"
                                  : ", down");
  }
  if (box.health == Health::down) out += "\ndown";
  if (box.inferred) out += "\nplaced by the recorded classes; the tree is not recorded";
  return out;
}

const char* band_style(BoxKind kind) {
  switch (kind) {
    case BoxKind::package: return "package";
    case BoxKind::numa: return "numa";
    case BoxKind::host_bridge: return "bridge";
    case BoxKind::pci_switch: return "switch";
    default: return "unplaced";
  }
}

// The rate of a link; of a reduced one also its highest.
std::string rate_label(const Box& box) {
  if (!box.gbs) return "?";
  if (box.doubted) return rate(box.gbs) + "?";
  if (box.health == Health::reduced && box.max_gbs && *box.gbs < *box.max_gbs) {
    return fmt::format("{}/{}", rate(box.gbs), rate(box.max_gbs));
  }
  return rate(box.gbs);
}

std::string label_style(const Box& box) {
  if (box.doubted) return "label doubt";
  return box.health == Health::reduced && box.max_gbs ? "label warn" : "label";
}

}  // namespace

std::string line_style(const Box& box) {
  std::string out = "pcie";
  if (box.doubted) out += " doubted";
  if (box.health == Health::reduced && box.max_gbs && box.gbs && *box.gbs < *box.max_gbs) out += " reduced";
  if (box.inferred) out += " inferred";
  return out;
}

std::string line_title(const Box& box) {
  std::string out = "PCIe";
  if (!box.link_words.empty()) out += " " + box.link_words;
  out += box.gbs ? fmt::format(", {} GB/s per direction", rate(box.gbs)) : ", rate unknown";
  if (box.gbs && box.max_gbs && *box.gbs < *box.max_gbs * 0.99)
    out += fmt::format(", of {} at its best", rate(box.max_gbs));
  if (box.doubted) out += "; implausible: slower than a device below it, or read while idle";
  return out;
}

void draw_band(const Box& box, const Area& band, bool is_root, const std::string& prefix, Scene& scene) {
  const std::string style = band_style(box.kind) + state_classes(box);
  scene.boxes.push_back({band, style, key_of(box, prefix), title_of(box), is_root ? 6.0 : 4.0});
  const double room = band.width - 16;
  if (is_root) {
    scene.add_text({band.x + 10, band.y + 18},
                   fit_choice({joined({box.name, box.model}), box.name}, 12.5 * kBold, room),
                   "head on-" + std::string(band_style(box.kind)), Anchor::start, band);
    scene.add_text({band.x + 10, band.y + 34}, fit_text(box.place, 10, room),
                   "sub on-" + std::string(band_style(box.kind)), Anchor::start, band);
    return;
  }
  const double size = box.kind == BoxKind::host_bridge ? 9.5 : 10.5;
  const std::string text = fit_choice({joined({box.name, box.model, box.place}), joined({box.name, box.place}),
                                       joined({box.kind == BoxKind::pci_switch ? "Switch" : box.name, box.place}),
                                       box.place.empty() ? box.name : box.place},
                                      size, room);
  scene.add_text({band.center().x, band.center().y + size * 0.36}, text,
                 std::string(box.kind == BoxKind::host_bridge ? "tiny" : "band") + " on-" + band_style(box.kind),
                 Anchor::middle, band);
}

void draw_drop(const Box& below, Point from, double bottom, Scene& scene) {
  const bool is_internal = below.kind == BoxKind::host_bridge || below.kind == BoxKind::numa;
  scene.lines.push_back({{from, {from.x, bottom}},
                         is_internal ? "inner" : line_style(below),
                         is_internal ? "" : line_title(below),
                         is_internal ? 3.0 : 1.4});
  if (is_internal || below.inferred) return;
  scene.add_text({from.x + 5, bottom - 9.5}, rate_label(below), label_style(below));
}

void draw_branch(const Box& box, Point from, Point to, Scene& scene) {
  scene.lines.push_back({{from, to}, line_style(box), line_title(box), 1.4});
  if (!box.gbs) return;
  scene.add_text({(from.x + to.x) / 2 + 0.5, to.y - 3}, rate_label(box), label_style(box) + " small", Anchor::middle);
}

void draw_nic(const Box& nic, const Area& area, double trunk, const std::string& prefix, Scene& scene) {
  scene.boxes.push_back({area, "nic" + state_classes(nic), key_of(nic, prefix), title_of(nic), 4});
  draw_branch(nic, {trunk, area.center().y}, {area.x, area.center().y}, scene);
  const double right = area.right() - 10;  // the ports are to the right
  const double left = area.x + 7;
  const bool is_down = nic.health == Health::down;
  const double down_room = is_down ? text_width("down", kSmall) + 4 : 0;
  scene.add_text({left, area.y + 13}, fit_text(nic.name, kText * kBold, right - left - down_room), "name on-nic",
                 Anchor::start, area);
  if (is_down) scene.add_text({right, area.y + 13}, "down", "small bad", Anchor::end, area);
  const double room = right - left - text_width(nic.model, kSmall) - 4;
  const std::string place = nic.place == nic.name ? "" : nic.place;
  const std::string no_domain = place.rfind("0000:", 0) == 0 ? place.substr(5) : place;
  scene.add_text({left, area.y + 25}, fit_choice({place, no_domain}, kTiny, room), "tiny faint-on-nic", Anchor::start,
                 area);
  scene.add_text({right, area.y + 25}, nic.model, "small on-nic", Anchor::end, area);
  const std::size_t ports = std::max<std::size_t>(1, nic.ports.size());
  const double pitch = area.height / static_cast<double>(ports);
  for (std::size_t i = 0; i < ports; ++i) {
    const double height = std::min(9.0, pitch - 4);
    const Area port{area.right() - 5, area.y + (static_cast<double>(i) + 0.5) * pitch - height / 2, 9, height};
    std::string style = "port";
    std::string title;
    if (!nic.ports.empty()) {
      const BondPort& leg = nic.ports[i];
      style += !leg.up ? "" : *leg.up ? " up" : " down";
      title = fmt::format("bond leg {}{}", leg.name, leg.gbps ? ", " + gigabits(*leg.gbps) : "");
    } else if (nic.health == Health::down) {
      style += " down";
    }
    scene.boxes.push_back({port, style, "", title, 1.5});
  }
}

void draw_gpu(const Box& gpu, const Area& area, Point from, const std::string& prefix, Scene& scene) {
  scene.boxes.push_back({area, "gpu" + state_classes(gpu), key_of(gpu, prefix), title_of(gpu), 5});
  const double room = area.width - 13;
  scene.add_text({area.x + 7, area.y + 17}, fit_text(gpu.name, 12.5, room), "head on-gpu", Anchor::start, area);
  scene.add_text({area.x + 7, area.y + 31}, fit_text(gpu.model, kSmall, room), "small on-gpu", Anchor::start, area);
  scene.add_text({area.x + 7, area.y + 44}, fit_text(gpu.place, kTiny, room), "tiny faint-on-gpu", Anchor::start, area);
  if (from.y < area.y) scene.lines.push_back({{from, {from.x, area.y}}, line_style(gpu), line_title(gpu), 1.4});
  if (gpu.gbs) scene.add_text({from.x + 5, area.y - 6}, rate_label(gpu), label_style(gpu));
}

}  // namespace fairway::render
