#include "doctor/fleet.h"

#include <gtest/gtest.h>

#include "server.h"

namespace fairway::doctor::testing {
namespace {

std::vector<Node> four_nodes() {
  std::vector<Node> nodes;
  for (int i = 0; i < 4; ++i) {
    auto server = healthy();
    nodes.push_back({"node" + std::to_string(i), server.now, {}});
  }
  return nodes;
}

void examine_all(std::vector<Node>& nodes) {
  for (auto& node : nodes) {
    const predict::Model model(node.found.machine);
    node.report = examine({model, node.found.facts, {}, nullptr, nullptr});
  }
}

TEST(DoctorFleet, EqualNodesDoNotDiffer) {
  auto nodes = four_nodes();
  examine_all(nodes);
  const auto fleet = compare_fleet(nodes);
  EXPECT_TRUE(fleet.deviations.empty()) << text_of(fleet, nodes, {});
  EXPECT_EQ(fleet.groups.size(), 1U);
  EXPECT_EQ(exit_code(fleet, nodes), 0);
}

TEST(DoctorFleet, NamesTheNodeTheDeviceAndTheFieldThatDiffer) {
  auto nodes = four_nodes();
  auto& machine = nodes[2].found.machine;
  machine.pci[machine.gpus[3].pci.index].link.width.value = 8;
  machine.rdma[1].firmware.value = "28.38.1000";
  machine.rdma[4].ports.front().active_mtu.value = 1024;
  nodes[1].found.facts.forget("gpu.kernel_module");
  nodes[1].found.facts.set("gpu.kernel_module", "proprietary", "test");
  examine_all(nodes);
  const auto fleet = compare_fleet(nodes);
  const auto differs = [&](std::string_view node, std::string_view subject, std::string_view field) {
    for (const auto& one : fleet.deviations) {
      if (one.node == node && one.subject == subject && one.field == field) return true;
    }
    return false;
  };
  EXPECT_TRUE(differs("node2", "GPU3", "PCIe width"));
  EXPECT_TRUE(differs("node2", "mlx5_1", "firmware"));
  EXPECT_TRUE(differs("node2", "mlx5_4", "MTU"));
  EXPECT_TRUE(differs("node1", "host", "GPU kernel module"));
  EXPECT_EQ(fleet.deviations.size(), 4U) << text_of(fleet, nodes, {});
  EXPECT_GT(fleet.deviations.front().loss_gbps.value_or(0), 0) << "the costliest first";
  EXPECT_EQ(exit_code(fleet, nodes), 1);
  EXPECT_NE(text_of(fleet, nodes, {}).find("x16 (3 of 4)"), std::string::npos) << text_of(fleet, nodes, {});
  EXPECT_NE(html_of(fleet, nodes).find("PCIe width"), std::string::npos);
  EXPECT_NE(html_of(fleet, nodes).find("<td data-is=\"most others\">"), std::string::npos) << "a narrow screen";
}

TEST(DoctorFleet, ANicThatIsGoneIsADifferenceAndNotAnotherKindOfMachine) {
  auto nodes = four_nodes();
  nodes[3].found.machine.nics.pop_back();
  examine_all(nodes);
  const auto fleet = compare_fleet(nodes);
  ASSERT_EQ(fleet.groups.size(), 1U) << text_of(fleet, nodes, {});
  bool missing = false;
  for (const auto& one : fleet.deviations)
    missing = missing || (one.node == "node3" && one.subject == "mlx5_7" && one.value == "missing");
  EXPECT_TRUE(missing) << text_of(fleet, nodes, {});
}

TEST(DoctorFleet, TwoAgainstTwoIsSaidAndNotDecided) {
  auto nodes = four_nodes();
  for (const int i : {0, 1}) nodes[i].found.machine.rdma[0].firmware.value = "28.38.1000";
  examine_all(nodes);
  const auto fleet = compare_fleet(nodes);
  EXPECT_TRUE(fleet.deviations.empty());
  EXPECT_EQ(fleet.undecided.size(), 1U);
}

TEST(DoctorFleet, ANodeWithoutItsGpusDiffersFromItsFleet) {
  auto nodes = four_nodes();
  nodes[2].found.machine.gpus.clear();
  nodes[2].found.machine.links.clear();
  nodes[2].found.machine.peers.clear();
  nodes[2].found.machine.nics.clear();
  examine_all(nodes);
  const auto fleet = compare_fleet(nodes);
  ASSERT_EQ(fleet.deviations.size(), 1U) << text_of(fleet, nodes, {});
  EXPECT_EQ(fleet.deviations.front().node, "node2");
  EXPECT_EQ(fleet.deviations.front().value, "none");
  EXPECT_EQ(exit_code(fleet, nodes), 1);
}

TEST(DoctorFleet, WhereNothingWasComparedItSaysSo) {
  auto nodes = four_nodes();
  nodes.resize(2);
  for (auto& gpu : nodes[1].found.machine.gpus) gpu.model.value = "NVIDIA B200";
  examine_all(nodes);
  const auto fleet = compare_fleet(nodes);
  EXPECT_EQ(fleet.compared, 0U);
  EXPECT_NE(text_of(fleet, nodes, {}).find("nothing compared"), std::string::npos) << text_of(fleet, nodes, {});
  EXPECT_EQ(text_of(fleet, nodes, {}).find("no differences"), std::string::npos);
  EXPECT_EQ(exit_code(fleet, nodes), 1) << "what was not compared is not equal";
}

TEST(DoctorFleet, NodesWithoutMeasuredRatesAreNamed) {
  auto nodes = four_nodes();
  examine_all(nodes);
  const auto fleet = compare_fleet(nodes);
  const std::string of_all = "no measured rates in the file of any of the 4 nodes";
  EXPECT_NE(text_of(fleet, nodes, {}).find(of_all), std::string::npos) << text_of(fleet, nodes, {});
  EXPECT_NE(html_of(fleet, nodes).find(of_all), std::string::npos);
  for (const int i : {0, 2}) nodes[i].found.measured.push_back(row(healthy(), 0, 0, 390));
  const std::string of_two = "no measured rates in the file of node1, node3, so";
  EXPECT_NE(text_of(fleet, nodes, {}).find(of_two), std::string::npos) << text_of(fleet, nodes, {});
  const auto json = json_of(fleet, nodes);
  ASSERT_TRUE(json) << json.status().message();
  EXPECT_NE(json->find("\"measured_rates\": 1"), std::string::npos);
  EXPECT_NE(json->find("\"measured_rates\": 0"), std::string::npos);
  for (auto& node : nodes) node.found.measured.push_back(row(healthy(), 0, 0, 390));
  EXPECT_EQ(text_of(fleet, nodes, {}).find("no measured rates"), std::string::npos);
}

}  // namespace
}  // namespace fairway::doctor::testing
