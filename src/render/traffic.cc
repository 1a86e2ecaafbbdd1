#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "render/layout.h"
#include "render/outline.h"

namespace fairway::render {
namespace {

constexpr double kLane = 4;       // between streams side by side
constexpr double kEnd = 12;       // between those that end at one device
constexpr double kArrow = 5;      // half the width of an arrow's head
constexpr double kBelowGpus = 8;  // where the lane of GPUs' links begins

using topology::NodeRef;

class Painter {
 public:
  Painter(const topology::Machine& machine, Scene& scene) : outline_(outline(machine)), scene_(scene) {
    for (const SceneBox& box : scene.boxes)
      if (!box.node.empty()) areas_.emplace(box.node, box.area);
    std::vector<const Box*> above;
    for (const Box& root : outline_.roots) remember(root, above);
  }

  bool paint(const Stream& stream) {
    const Area* from = area(stream.from);
    const Area* to = area(stream.to);
    if (from == nullptr || to == nullptr || stream.from == stream.to) return false;
    std::vector<Point> points = stream.over_gpu_links ? below(stream, *from, *to) : above(stream, *from, *to);
    const std::string style = stream.slow ? "stream slow" : "stream";
    scene_.streams.push_back({points, style, stream.title, 2});
    add_head(points[points.size() - 2], points.back(), style);
    if (stream.returns) add_head(points[1], points[0], style);
    const bool up = points[1].y < points[0].y;
    if (points.size() > 2 && !up)  // on its lane, as the labels of links are
      scene_.add_text({(points[1].x + points[2].x) / 2, points[1].y + 3}, stream.label, "label small", Anchor::middle);
    else
      scene_.add_text({points[0].x + 4, points[0].y + (up ? -5 : 12)}, stream.label, "label small");
    return true;
  }

 private:
  void remember(const Box& box, std::vector<const Box*>& above) {
    above.push_back(&box);
    if (box.node != NodeRef{}) ways_.emplace(box.node, above);
    for (const Box& child : box.children) remember(child, above);
    above.pop_back();
  }

  [[nodiscard]] const Area* area(NodeRef node) const {
    const auto found = areas_.find(node_key(node));
    return found == areas_.end() ? nullptr : &found->second;
  }

  // The lowest drawn box above `node` that is above `other` as well; without one the highest above `node`.
  [[nodiscard]] const Area* turn(NodeRef node, NodeRef other) const {
    const auto mine = ways_.find(node), theirs = ways_.find(other);
    if (mine == ways_.end() || theirs == ways_.end()) return nullptr;
    const Area* highest = nullptr;
    for (auto each = mine->second.rbegin(); each != mine->second.rend(); ++each) {
      const bool shared = std::ranges::find(theirs->second, *each) != theirs->second.end();
      const Area* drawn = (*each)->node == NodeRef{} ? nullptr : area((*each)->node);
      if (shared) return drawn != nullptr || (*each)->kind != BoxKind::pci_switch ? drawn : nullptr;
      if (drawn != nullptr) highest = drawn;
    }
    return highest;
  }

  // A place of its own at that edge of a device.
  double place(NodeRef node, bool is_end) {
    const Area& box = *area(node);
    double& used = used_[{node, is_end}];
    const double at = is_end ? box.x + 10 + used * kEnd : box.x + 20 + used * kLane;
    used += 1;
    return std::min(at, box.right() - 4);
  }

  // Up to the box that both are below, or to both sockets, and down again.
  std::vector<Point> above(const Stream& stream, const Area& from, const Area& to) {
    const Area* here = turn(stream.from, stream.to);
    const Area* there = turn(stream.to, stream.from);
    const double x = place(stream.from, false);
    const bool starts_there = here != nullptr && (here == &from || here->y >= from.y);
    if (here == nullptr || there == nullptr || starts_there) {  // below one switch: one box stands above the other
      const double column = std::clamp(to.x + to.width / 2, from.x + 4, from.right() - 4);
      const bool up = to.y < from.y;
      return {{column, up ? from.y : from.bottom()}, {column, up ? to.bottom() : to.y}};
    }
    const double lane = lane_in(*here);
    const double end = place(stream.to, true);
    const double top = there->y > here->y ? lane_in(*there) : lane;
    std::vector<Point> points{{x, from.y}, {x, lane}, {end, lane}};
    if (top != lane) points.push_back({end, top});
    points.push_back({end, to.y});
    return points;
  }

  // Lanes of a box, from its middle outwards.
  double lane_in(const Area& box) {
    const int number = lanes_[box.y]++;  // sockets side by side share theirs
    const double step = (number % 2 == 0 ? -1.0 : 1.0) * ((number + 1) / 2) * kLane;
    return std::clamp(box.center().y + step, box.y + 2, box.bottom() - 2);
  }

  std::vector<Point> below(const Stream& stream, const Area& from, const Area& to) {
    const double lane = std::max(from.bottom(), to.bottom()) + kBelowGpus + kLane * gpu_lanes_++;
    const double x = place(stream.from, false), end = place(stream.to, true);
    return {{x, from.bottom()}, {x, lane}, {end, lane}, {end, to.bottom()}};
  }

  void add_head(Point before, Point tip, const std::string& style) {
    const double back = tip.y > before.y ? -1 : 1;  // every last part is upright
    scene_.streams.push_back(
        {{{tip.x - kArrow, tip.y + back * kArrow}, tip, {tip.x + kArrow, tip.y + back * kArrow}}, style, "", 2});
  }

  Outline outline_;
  Scene& scene_;
  std::map<std::string, Area> areas_;
  std::map<NodeRef, std::vector<const Box*>> ways_;  // each box and what is above it, roots first
  std::map<std::pair<NodeRef, bool>, double> used_;
  std::map<double, int> lanes_;
  int gpu_lanes_ = 0;
};

bool crosses(const SceneLine& line, const Area& area) {
  for (std::size_t i = 1; i < line.points.size(); ++i) {
    const auto [left, right] = std::minmax(line.points[i - 1].x, line.points[i].x);
    const auto [top, bottom] = std::minmax(line.points[i - 1].y, line.points[i].y);
    if (left < area.right() && right > area.x && top < area.bottom() && bottom > area.y) return true;
  }
  return false;
}

// In the colour of what the text stands in: the smallest box around it.
std::string ground_of(const Scene& scene, Point at) {
  const SceneBox* smallest = nullptr;
  for (const auto* layer : {&scene.areas, &scene.boxes})
    for (const SceneBox& box : *layer) {
      const bool inside =
          at.x >= box.area.x && at.x <= box.area.right() && at.y >= box.area.y && at.y <= box.area.bottom();
      if (inside &&
          (smallest == nullptr || box.area.width * box.area.height < smallest->area.width * smallest->area.height))
        smallest = &box;
    }
  return smallest == nullptr ? "ground" : smallest->style;
}

// Streams go behind the texts that they cross. Labels have an edge of their own.
void add_plates(Scene& scene) {
  constexpr double kEdge = 2;
  for (const SceneText& text : scene.texts) {
    const Area area = area_of(text);
    const bool crossed = std::ranges::any_of(scene.streams, [&](const SceneLine& line) { return crosses(line, area); });
    if (!crossed || text.style.starts_with("label")) continue;
    scene.plates.push_back({{area.x - kEdge, area.y - kEdge, area.width + 2 * kEdge, area.height + 2 * kEdge},
                            ground_of(scene, text.at) + " plate",
                            "",
                            "",
                            2});
  }
}

}  // namespace

std::size_t add_streams(const topology::Machine& machine, std::span<const Stream> streams, const std::string& legend,
                        Scene& scene) {
  Painter painter(machine, scene);
  std::size_t painted = 0;
  for (const Stream& stream : streams) painted += painter.paint(stream) ? 1 : 0;
  add_plates(scene);
  if (painted == 0 || legend.empty()) return painted;
  const double y = scene.height + 6;
  scene.add_text({24, y}, legend, "legend");
  scene.width = std::max(scene.width, text_width(legend, 10) + 48);
  scene.height = y + 14;
  return painted;
}

}  // namespace fairway::render
