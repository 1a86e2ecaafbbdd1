#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "render/layout.h"
#include "render/page.h"
#include "render/svg.h"
#include "render_support.h"
#include "support/sanitized.h"

namespace fairway::render {
namespace {

Scene picture_of(const topology::Fabric& fabric) {
  return fabric.machines.size() == 1 ? picture(fabric.machines[0]) : picture(fabric);
}

std::vector<TestMachine> all_machines() {
  std::vector<TestMachine> out = recorded_machines();
  for (TestMachine& machine : fixture_machines()) out.push_back(std::move(machine));
  return out;
}

bool overlap(const Area& a, const Area& b) {
  constexpr double kTouch = 0.5;
  return a.x + kTouch < b.right() && b.x + kTouch < a.right() && a.y + kTouch < b.bottom() && b.y + kTouch < a.bottom();
}

// Boxes that stand for parts; ports, tags and switches inside a bar stand on other boxes.
std::vector<const SceneBox*> parts(const Scene& scene) {
  std::vector<const SceneBox*> out;
  for (const SceneBox& box : scene.boxes) {
    const bool on_others = box.style.starts_with("port") || box.style.starts_with("tag");
    if (!on_others && box.style != "nvswitch" && box.style != "ground") out.push_back(&box);
  }
  return out;
}

double size_of(const std::string& style) {
  if (style.find("title") == 0) return 17;
  if (style.find("head") == 0) return 12.5 * 1.1;
  if (style.find("name") == 0) return 11 * 1.1;
  if (style.find("tiny") == 0) return 8.5;
  if (style.find("small") != std::string::npos) return 9;
  return style.find("subtitle") == 0 ? 11 : 10;
}

Area extent(const SceneText& text) {
  const double size = size_of(text.style);
  const double width = text_width(text.text, size);
  const double left = text.anchor == Anchor::start ? text.at.x
                      : text.anchor == Anchor::end ? text.at.x - width
                                                   : text.at.x - width / 2;
  return {left, text.at.y - size * 0.75, width, size * 0.9};
}

TEST(Picture, NoPartLiesOnAnother) {
  for (const TestMachine& machine : all_machines()) {
    const Scene scene = picture_of(load_machine(machine));
    const auto boxes = parts(scene);
    for (std::size_t a = 0; a < boxes.size(); ++a) {
      for (std::size_t b = a + 1; b < boxes.size(); ++b) {
        EXPECT_FALSE(overlap(boxes[a]->area, boxes[b]->area))
            << machine.name << ": " << boxes[a]->title << " / " << boxes[b]->title;
      }
    }
  }
}

TEST(Picture, EverythingIsInsideItsEdges) {
  for (const TestMachine& machine : all_machines()) {
    const Scene scene = picture_of(load_machine(machine));
    const Area all{0, 0, scene.width, scene.height};
    const auto inside = [&](const Area& area) {
      return area.x >= 0 && area.y >= 0 && area.right() <= all.width + 0.5 && area.bottom() <= all.height + 0.5;
    };
    for (const SceneBox& box : scene.boxes) EXPECT_TRUE(inside(box.area)) << machine.name << ": " << box.title;
    for (const SceneText& text : scene.texts) EXPECT_TRUE(inside(extent(text))) << machine.name << ": " << text.text;
    for (const SceneLine& line : scene.lines) {
      for (const Point& point : line.points)
        EXPECT_TRUE(inside({point.x, point.y, 0, 0})) << machine.name << ": " << line.title;
    }
  }
}

TEST(Picture, NoTextLiesOnAnotherOrRunsOutOfItsBox) {
  for (const TestMachine& machine : all_machines()) {
    const Scene scene = picture_of(load_machine(machine));
    for (std::size_t a = 0; a < scene.texts.size(); ++a) {
      for (std::size_t b = a + 1; b < scene.texts.size(); ++b) {
        EXPECT_FALSE(overlap(extent(scene.texts[a]), extent(scene.texts[b])))
            << machine.name << ": '" << scene.texts[a].text << "' / '" << scene.texts[b].text << "'";
      }
    }
    for (const SceneText& text : scene.texts) {
      const Area area = extent(text);
      for (const SceneBox* box : parts(scene)) {
        const bool starts_inside = text.at.x > box->area.x && text.at.x < box->area.right() &&
                                   text.at.y > box->area.y && text.at.y < box->area.bottom();
        if (!starts_inside) continue;
        EXPECT_LE(area.right(), box->area.right() + 1) << machine.name << ": " << text.text;
        EXPECT_GE(area.x, box->area.x - 1) << machine.name << ": " << text.text;
      }
    }
  }
}

TEST(Picture, EveryGpuAndRdmaNicIsDrawnOnce) {
  for (const TestMachine& machine : all_machines()) {
    const topology::Fabric fabric = load_machine(machine);
    const Scene scene = picture_of(fabric);
    std::multiset<std::string> keys;
    for (const SceneBox& box : scene.boxes) keys.insert(box.node);
    for (std::size_t m = 0; m < fabric.machines.size(); ++m) {
      const std::string prefix = fabric.machines.size() == 1 ? "" : "m" + std::to_string(m) + "-";
      for (std::uint32_t i = 0; i < fabric.machines[m].gpus.size(); ++i) {
        EXPECT_EQ(keys.count(prefix + node_key({topology::NodeKind::gpu, i})), 1U) << machine.name << " GPU " << i;
      }
      for (std::uint32_t i = 0; i < fabric.machines[m].nics.size(); ++i) {
        if (!fabric.machines[m].nics[i].rdma) continue;
        EXPECT_EQ(keys.count(prefix + node_key({topology::NodeKind::nic, i})), 1U) << machine.name << " NIC " << i;
      }
    }
  }
}

TEST(Picture, GpusStandInOneRow) {
  for (const TestMachine& machine : all_machines()) {
    const topology::Fabric fabric = load_machine(machine);
    if (fabric.machines.size() != 1) continue;
    std::set<double> rows;
    for (const SceneBox& box : picture_of(fabric).boxes) {
      if (box.style.rfind("gpu", 0) == 0) rows.insert(box.area.y);
    }
    EXPECT_LE(rows.size(), 1U) << machine.name;
  }
}

TEST(Picture, ALinkBelowItsBestAndALegThatIsDownAreShown) {
  const Scene scene = picture(awkward_machine());
  bool reduced = false;
  bool label = false;
  bool leg = false;
  for (const SceneLine& line : scene.lines) reduced = reduced || line.style.find("reduced") != std::string::npos;
  for (const SceneText& text : scene.texts) label = label || text.text == "31.5/63";
  for (const SceneBox& box : scene.boxes) leg = leg || box.style == "port down";
  EXPECT_TRUE(reduced);
  EXPECT_TRUE(label);
  EXPECT_TRUE(leg);
}

TEST(Picture, ALinkOfAGpuToItsCpuIsDrawn) {
  topology::Machine machine;
  constexpr auto kHand = topology::Source::hand_written;
  machine.packages.emplace_back();
  machine.numa_nodes.emplace_back().package = topology::Ref<topology::Package>(std::size_t{0});
  machine.gpus.emplace_back().numa_node.set(0, kHand);
  topology::DeviceLink link;
  link.kind = topology::LinkKind::c2c;
  link.a = {topology::NodeKind::numa_node, 0};
  link.b = {topology::NodeKind::gpu, 0};
  link.count.set(1, kHand);
  link.gbs_per_link.set(450, kHand);
  machine.links.push_back(link);
  const Scene scene = picture(machine);
  const auto line =
      std::find_if(scene.lines.begin(), scene.lines.end(), [](const SceneLine& l) { return l.style == "c2c"; });
  ASSERT_NE(line, scene.lines.end());
  EXPECT_EQ(line->title, "C2C to NUMA node 0, 450 GB/s per direction");
  // It reaches the socket: nothing is between.
  const auto socket =
      std::find_if(scene.boxes.begin(), scene.boxes.end(), [](const SceneBox& b) { return b.style == "package"; });
  ASSERT_NE(socket, scene.boxes.end());
  EXPECT_DOUBLE_EQ(line->points.back().y, socket->area.bottom());
  EXPECT_TRUE(std::any_of(scene.texts.begin(), scene.texts.end(),
                          [](const SceneText& text) { return text.text == "CPU 450"; }));
}

TEST(Picture, SoftwareRdmaStandsBackBehindItsNic) {
  for (const TestMachine& machine : recorded_machines()) {
    if (machine.name != "vm_two_sockets") continue;
    const topology::Fabric fabric = load_machine(machine);
    for (const SceneBox& box : picture_of(fabric).boxes) {
      if (!box.style.starts_with("nic")) continue;
      EXPECT_EQ(box.style.find("muted") != std::string::npos, box.title.starts_with("rxe")) << box.title;
    }
  }
}

TEST(Picture, TextsFromFilesCannotBreakOutOfIt) {
  const topology::Machine machine = awkward_machine();
  for (const std::string& out : {svg(picture(machine)), page(machine, {})}) {
    EXPECT_EQ(out.find("<script>alert"), std::string::npos);
    EXPECT_EQ(out.find("<b>&amp;\n"), std::string::npos);
    EXPECT_EQ(out.find("]]>"), std::string::npos);
    EXPECT_EQ(out.find("mlx5_'"), std::string::npos);
  }
}

TEST(Picture, ThePageNeedsNothingFromElsewhere) {
  const std::string out = page(awkward_machine(), {});
  for (const char* forbidden : {"src=", "href=", "@import", "url(", "fetch("})
    EXPECT_EQ(out.find(forbidden), std::string::npos) << forbidden;
  EXPECT_NE(out.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(out.find("@media print"), std::string::npos);
}

TEST(Picture, AnEmptyMachineIsDrawnToo) {
  const topology::Machine machine;
  EXPECT_NE(svg(picture(machine)).find("</svg>"), std::string::npos);
  EXPECT_NE(page(machine, {}).find("no path to show"), std::string::npos);
  EXPECT_NE(svg(picture(topology::Fabric{})).find("</svg>"), std::string::npos);
}

TEST(Picture, EightGpusAndThirtyTwoNicsTakeLessThanATenthOfASecond) {
  topology::Fabric fabric;
  for (const TestMachine& machine : fixture_machines()) {
    if (machine.name == "p5.48xl-topo.xml") fabric = load_machine(machine);
  }
  if (fabric.machines.empty()) GTEST_SKIP() << "no ../shared/fixtures beside the sources, or no pugixml";
  // The process's own time, so that a busy machine does not fail it.
  const auto start = std::clock();
  const std::string out = page(fabric.machines[0], {});
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_GT(out.size(), 10000U);
  EXPECT_LT(took, kSanitized ? 2 : 0.1);
}

TEST(Picture, EightGpusFitAPageOf1600Pixels) {
  for (const TestMachine& machine : all_machines()) {
    const auto fabric = load_machine(machine);
    if (fabric.machines.size() != 1 || fabric.machines[0].gpus.size() > 8) continue;
    EXPECT_LE(picture_of(fabric).width, 1600) << machine.name;
  }
}

TEST(Picture, GpusStandInTheOrderOfTheirNumbers) {
  for (const TestMachine& machine : recorded_machines()) {
    const auto fabric = load_machine(machine);
    if (fabric.machines.size() != 1) continue;
    const Scene scene = picture_of(fabric);
    std::map<std::uint32_t, double> places;
    for (std::uint32_t i = 0; i < fabric.machines[0].gpus.size(); ++i) {
      for (const SceneBox& box : scene.boxes)
        if (box.node == node_key({topology::NodeKind::gpu, i})) places[fabric.machines[0].gpus[i].ordinal] = box.area.x;
    }
    double before = -1;
    for (const auto& [number, x] : places) {
      EXPECT_GT(x, before) << machine.name << " GPU" << number;
      before = x;
    }
  }
}

TEST(Picture, ARateReadFromAnIdleGpuIsDrawnAsDoubted) {
  topology::Machine machine = awkward_machine();
  const auto doubted = [&] {
    const Scene scene = picture(machine);
    return std::count_if(scene.texts.begin(), scene.texts.end(),
                         [](const SceneText& text) { return text.style == "label doubt" && text.text.ends_with("?"); });
  };
  ASSERT_EQ(doubted(), 0);
  auto& link = machine.pci[machine.gpus[0].pci.index].link;
  constexpr auto kSource = topology::Source::hand_written;
  link.max_speed_gts.set(32, kSource);
  link.speed_gts.value = 2.5;
  link.width.value = 16;
  link.max_width.value = 16;
  EXPECT_EQ(doubted(), 1);
  link.width.value = 8;  // at half its width it is a fault, not sleep
  EXPECT_EQ(doubted(), 0);
}

}  // namespace
}  // namespace fairway::render
