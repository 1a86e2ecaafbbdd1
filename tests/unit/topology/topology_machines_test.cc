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

// The classes of the tree that QEMU was told to build, NIC by NIC: eth5 and eth6 on one switch, eth7 on a switch below
// it, eth8 on another root port of that bridge; eth3 and eth4 on a switch of the node's other bridge; eth1 and eth2 on
// a switch of the other node, eth0 on that node's second bridge.
TEST_F(RecordedMachines, VmTwoSocketsHasTheClassesOfItsTree) {
  const auto machine = load(recorded_machines() + "/vm_two_sockets.json");
  ASSERT_TRUE(machine) << machine.status().to_string();
  const char* const names[] = {"eth5", "eth6", "eth7", "eth8", "eth3", "eth4", "eth1", "eth2", "eth0"};
  const char* const classes[9][9] = {{"X", "PIX", "PXB", "PHB", "NODE", "NODE", "SYS", "SYS", "SYS"},
                                     {"PIX", "X", "PXB", "PHB", "NODE", "NODE", "SYS", "SYS", "SYS"},
                                     {"PXB", "PXB", "X", "PHB", "NODE", "NODE", "SYS", "SYS", "SYS"},
                                     {"PHB", "PHB", "PHB", "X", "NODE", "NODE", "SYS", "SYS", "SYS"},
                                     {"NODE", "NODE", "NODE", "NODE", "X", "PIX", "SYS", "SYS", "SYS"},
                                     {"NODE", "NODE", "NODE", "NODE", "PIX", "X", "SYS", "SYS", "SYS"},
                                     {"SYS", "SYS", "SYS", "SYS", "SYS", "SYS", "X", "PIX", "NODE"},
                                     {"SYS", "SYS", "SYS", "SYS", "SYS", "SYS", "PIX", "X", "NODE"},
                                     {"SYS", "SYS", "SYS", "SYS", "SYS", "SYS", "NODE", "NODE", "X"}};
  const auto node = [&machine](const std::string& name) -> NodeRef {
    for (std::uint32_t i = 0; i < machine->nics.size(); ++i) {
      if (machine->nics[i].name == name) return {NodeKind::nic, i};
    }
    ADD_FAILURE() << "no NIC " << name;
    return {};
  };
  for (std::size_t r = 0; r < 9; ++r) {
    for (std::size_t c = 0; c < 9; ++c) {
      const auto path = path_class(*machine, node(names[r]), node(names[c]));
      ASSERT_TRUE(path);
      EXPECT_EQ(path->to_string(), classes[r][c]) << names[r] << " - " << names[c];
    }
  }
  // An emulated bridge's 2.5 GT/s x1 is no rate, and a speed of -1 is none either.
  for (const auto& edge : edges(*machine)) {
    EXPECT_FALSE(edge.kind == EdgeKind::pcie && edge.gbs) << node_name(*machine, edge.b);
  }
  EXPECT_FALSE(nic_capacity_gbps(*machine, machine->nics[node("eth0").index]));
  EXPECT_DOUBLE_EQ(*nic_capacity_gbps(*machine, machine->nics[node("eth1").index]), 25);
  // Limits that libibverbs said.
  const auto rxe = find_rdma(*machine, "rxe0");
  ASSERT_TRUE(rxe);
  EXPECT_FALSE(machine->rdma[rxe.index].attributes.empty());
  EXPECT_EQ(*machine->rdma[rxe.index].ports.at(0).max_mtu, 4096U);
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
