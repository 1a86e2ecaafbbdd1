#include "machines/build_machines.h"
#include "machines/golden.h"
#include "topology/load.h"
#include "topology_support.h"

namespace fairway::topology {
namespace {

class RecordedMachines : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef FAIRWAY_HAVE_JSON
    GTEST_SKIP() << "this build has no nlohmann-json";
#endif
  }
};

TEST_F(RecordedMachines, GiveTheirGoldenOutput) {
  const auto names = machines::recorded(recorded_machines());
  EXPECT_GE(names.size(), 6U);
  for (const auto& name : names) {
    const auto base = recorded_machines() + "/" + name;
    const auto fabric = load_fabric(base + ".json");
    ASSERT_TRUE(fabric) << fabric.status().to_string();
    EXPECT_EQ(machines::golden(*fabric), read_text(base + ".golden.txt"))
        << name << ": see tests/machines/regenerate.sh";
  }
}

TEST_F(RecordedMachines, AreWhatTheirBuildersBuild) {
  const auto same = [](const std::string& name, const Machine& built) {
    const auto machine = load(recorded_machines() + "/" + name + ".json");
    ASSERT_TRUE(machine) << machine.status().to_string();
    EXPECT_TRUE(*machine == built) << name << ": see tests/machines/regenerate.sh";
  };
  same("dgx1v", machines::dgx1v());
  same("nvlink_bridge_pair", machines::nvlink_bridge_pair());
  same("mi250x", machines::mi250x());
  const auto fabric = load_fabric(recorded_machines() + "/two_rail_hosts.json");
  ASSERT_TRUE(fabric) << fabric.status().to_string();
  EXPECT_TRUE(*fabric == machines::two_rail_hosts());
}

TEST(HandWrittenMachines, HaveEveryLinkOfTheirGpus) {
  const auto links_of = [](const Machine& machine, std::uint32_t gpu) {
    std::uint32_t sum = 0;
    for (const auto& link : machine.links) {
      if (link.a == NodeRef{NodeKind::gpu, gpu} || link.b == NodeRef{NodeKind::gpu, gpu}) sum += *link.count;
    }
    return sum;
  };
  for (std::uint32_t gpu = 0; gpu < 8; ++gpu) {
    EXPECT_EQ(links_of(machines::dgx1v(), gpu), 6U) << gpu;   // V100: six NVLinks
    EXPECT_EQ(links_of(machines::mi250x(), gpu), 8U) << gpu;  // seven xGMI links to dies, one to the CPU
    EXPECT_EQ(links_of(machines::h100_host("h"), gpu), 18U) << gpu;
  }
}

TEST(HandWrittenMachines, Dgx1vHasPairsWithoutAnyNvLink) {
  const auto machine = machines::dgx1v();
  EXPECT_EQ(path_class(machine, {NodeKind::gpu, 0}, {NodeKind::gpu, 5})->to_string(), "SYS");
  EXPECT_EQ(path_class(machine, {NodeKind::gpu, 0}, {NodeKind::gpu, 3})->to_string(), "NV2");
}

}  // namespace
}  // namespace fairway::topology
