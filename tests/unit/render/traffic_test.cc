// Streams over the picture of a machine: each begins and ends at its devices, and none hides another.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "render/layout.h"
#include "render_support.h"

namespace fairway::render {
namespace {

using topology::NodeKind;
using topology::NodeRef;

Stream stream(NodeRef from, NodeRef to) {
  Stream out;
  out.from = from;
  out.to = to;
  out.label = "24.4";
  return out;
}

Area area_of(const Scene& scene, NodeRef node) {
  for (const SceneBox& box : scene.boxes)
    if (box.node == node_key(node)) return box.area;
  return {};
}

bool touches(const Area& area, Point point) {
  return point.x >= area.x && point.x <= area.right() && point.y >= area.y && point.y <= area.bottom();
}

// The streams of a scene without the heads of their arrows.
std::vector<SceneLine> lines_of(const Scene& scene) {
  std::vector<SceneLine> out;
  for (const SceneLine& line : scene.streams) {
    const bool is_head = line.points.size() == 3 && line.points[0].x != line.points[1].x;
    if (!is_head) out.push_back(line);
  }
  return out;
}

TEST(Traffic, BeginsAndEndsAtItsDevicesOnEveryMachine) {
  for (const TestMachine& test : recorded_machines()) {
    const topology::Fabric fabric = load_machine(test);
    if (fabric.machines.size() != 1) continue;
    const topology::Machine& machine = fabric.machines[0];
    for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu)
      for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic)
        for (const bool back : {false, true}) {
          Scene scene = picture(machine);
          const double width = scene.width, height = scene.height;
          const NodeRef a{NodeKind::gpu, gpu}, b{NodeKind::nic, nic};
          const Stream each = back ? stream(b, a) : stream(a, b);
          if (add_streams(machine, std::span(&each, 1), "", scene) == 0) continue;  // a NIC that is only counted
          const SceneLine line = lines_of(scene).at(0);
          EXPECT_TRUE(touches(area_of(scene, each.from), line.points.front())) << test.name << gpu << nic;
          EXPECT_TRUE(touches(area_of(scene, each.to), line.points.back())) << test.name << gpu << nic;
          for (const Point& point : line.points)
            EXPECT_TRUE(touches({0, 0, width, height}, point)) << test.name << gpu << nic;
          const Point last = line.points[line.points.size() - 2];
          EXPECT_EQ(last.x, line.points.back().x) << "upright, as its arrow's head is";
        }
  }
}

TEST(Traffic, GoesThroughBothSocketsOnItsWayToAFarNic) {
  const std::vector<TestMachine> recorded = recorded_machines();
  const auto h20 = std::find_if(recorded.begin(), recorded.end(), [](const auto& each) { return each.name == "h20"; });
  if (h20 == recorded.end()) GTEST_SKIP() << "this build reads no snapshots";
  const topology::Fabric fabric = load_machine(*h20);
  const topology::Machine& machine = fabric.machines.at(0);
  Scene scene = picture(machine);
  std::vector<Stream> all;
  for (std::uint32_t gpu = 0; gpu < 8; ++gpu) all.push_back(stream({NodeKind::gpu, gpu}, {NodeKind::nic, 0}));
  all[4].slow = true;
  ASSERT_EQ(add_streams(machine, all, "a legend", scene), 8u);
  const auto lines = lines_of(scene);
  ASSERT_EQ(lines.size(), 8u);
  const Area far = area_of(scene, {NodeKind::numa_node, 1}), near = area_of(scene, {NodeKind::numa_node, 0});
  EXPECT_TRUE(touches(far, lines[4].points[1]));
  EXPECT_TRUE(touches(near, lines[4].points[2]));
  EXPECT_EQ(lines[4].style, "stream slow");
  EXPECT_EQ(lines[1].points.size(), 2u) << "below one switch: straight";
  std::set<double> lanes;
  for (const SceneLine& line : lines)
    if (line.points.size() > 2) lanes.insert(line.points[1].y);
  EXPECT_EQ(lanes.size(), 7u) << "a lane each";
  EXPECT_TRUE(
      std::any_of(scene.texts.begin(), scene.texts.end(), [](const auto& each) { return each.text == "a legend"; }));
}

TEST(Traffic, OfGpuLinksStaysBelowTheGpus) {
  topology::Machine machine = awkward_machine();
  Scene scene = picture(machine);
  Stream each = stream({NodeKind::gpu, 0}, {NodeKind::gpu, 1});
  each.over_gpu_links = true;
  ASSERT_EQ(add_streams(machine, std::span(&each, 1), "", scene), 1u);
  const Area gpu = area_of(scene, each.from);
  const SceneLine line = lines_of(scene).at(0);
  for (const Point& point : line.points) EXPECT_GE(point.y, gpu.bottom());
}

// README's picture: an arrow that meets a text goes behind it, on a plate of the colour that the text stands on.
TEST(Traffic, GoesThroughNoText) {
  const std::vector<TestMachine> recorded = recorded_machines();
  const auto h20 = std::find_if(recorded.begin(), recorded.end(), [](const auto& each) { return each.name == "h20"; });
  if (h20 == recorded.end()) GTEST_SKIP() << "this build reads no snapshots";
  const topology::Fabric fabric = load_machine(*h20);
  Scene scene = picture(fabric.machines.at(0));
  std::vector<Stream> all;
  for (std::uint32_t gpu = 0; gpu < 8; ++gpu) all.push_back(stream({NodeKind::gpu, gpu}, {NodeKind::nic, 0}));
  ASSERT_EQ(add_streams(fabric.machines.at(0), all, "", scene), 8u);
  const auto crosses = [&scene](const Area& area) {
    for (const SceneLine& line : scene.streams)
      for (std::size_t i = 1; i < line.points.size(); ++i) {
        const auto [left, right] = std::minmax(line.points[i - 1].x, line.points[i].x);
        const auto [top, bottom] = std::minmax(line.points[i - 1].y, line.points[i].y);
        if (left < area.right() && right > area.x && top < area.bottom() && bottom > area.y) return true;
      }
    return false;
  };
  std::size_t crossed = 0;
  for (const SceneText& text : scene.texts) {
    const Area area = area_of(text);
    if (text.style.starts_with("label") || !crosses(area)) continue;
    ++crossed;
    EXPECT_TRUE(std::any_of(scene.plates.begin(), scene.plates.end(), [&area](const SceneBox& plate) {
      return plate.area.x <= area.x && plate.area.right() >= area.right() && plate.area.y <= area.y &&
             plate.area.bottom() >= area.bottom();
    })) << text.text;
  }
  EXPECT_GE(crossed, 3u) << "both sockets' names, and the switch's";
  EXPECT_EQ(scene.plates.size(), crossed) << "and none beside";
  for (const SceneBox& plate : scene.plates)
    EXPECT_TRUE(plate.style.starts_with("package") || plate.style.starts_with("numa") ||
                plate.style.starts_with("switch"))
        << plate.style;
}

TEST(Traffic, OfWhatIsNotDrawnIsLeftOut) {
  const topology::Machine machine = awkward_machine();
  Scene scene = picture(machine);
  const double height = scene.height;
  const std::vector<Stream> none{stream({NodeKind::gpu, 0}, {NodeKind::gpu, 0}), stream({NodeKind::gpu, 0}, {}),
                                 stream({NodeKind::gpu, 99}, {NodeKind::nic, 0})};
  EXPECT_EQ(add_streams(machine, none, "a legend", scene), 0u);
  EXPECT_TRUE(scene.streams.empty());
  EXPECT_EQ(scene.height, height);
}

}  // namespace
}  // namespace fairway::render
