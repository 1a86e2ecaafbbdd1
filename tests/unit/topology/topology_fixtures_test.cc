#include <filesystem>
#include <sstream>

#include "topology/assess.h"
#include "topology/load.h"
#include "topology_support.h"

namespace fairway::topology {
namespace {

// The cells of a captured matrix, read here by a second, simpler way than the importer's.
std::vector<std::vector<std::string>> captured_cells(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream text(read_text(path));
  std::size_t columns = 0;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    if (row.empty()) break;
    if (columns == 0) {
      while (columns < row.size() && row[columns] != "CPU") ++columns;
      continue;
    }
    rows.emplace_back(row.begin() + 1, row.begin() + 1 + static_cast<std::ptrdiff_t>(columns));
  }
  return rows;
}

class Matrix : public ::testing::TestWithParam<const char*> {};

TEST_P(Matrix, EqualsTheCaptureCellByCell) {
  REQUIRE_FIXTURES();
  const auto path = fixtures() + "/" + GetParam();
  const auto machine = load(path);
  ASSERT_TRUE(machine) << machine.status().to_string();
  const auto expected = captured_cells(path);
  const auto matrix = path_matrix(*machine);
  ASSERT_EQ(matrix.ends.size(), expected.size());
  for (std::size_t r = 0; r < expected.size(); ++r) {
    ASSERT_EQ(expected[r].size(), expected.size());
    for (std::size_t c = 0; c < expected.size(); ++c)
      EXPECT_EQ(matrix.at(r, c).to_string(), expected[r][c]) << r << "," << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Captures, Matrix,
                         ::testing::Values("matrix/a100-8gpu-4nic-half-gpus-sys.txt",
                                           "matrix/oldformat-6gpu-2nic-device-names.txt",
                                           "seed-h20/nvidia-smi-topo-m.txt"),
                         [](const auto& which) { return "Capture" + std::to_string(which.index); });

struct Expected {
  const char* path;
  std::size_t gpus, nics, numa_nodes;
};

class Fixture : public ::testing::TestWithParam<Expected> {};

TEST_P(Fixture, LoadsWithItsDevicesAndSurvivesASnapshot) {
  REQUIRE_FIXTURES();
  const auto machine = load(fixtures() + "/" + GetParam().path);
  if (!machine && machine.status().code() == ErrorCode::unsupported) GTEST_SKIP() << machine.status().message();
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(machine->gpus.size(), GetParam().gpus);
  EXPECT_EQ(machine->nics.size(), GetParam().nics);
  EXPECT_EQ(machine->numa_nodes.size(), GetParam().numa_nodes);
  EXPECT_TRUE(class_conflicts(*machine).empty());
  const auto text = write_snapshot(*machine, {.keep_identities = true});
  if (!text && text.status().code() == ErrorCode::unsupported) GTEST_SKIP() << text.status().message();
  ASSERT_TRUE(text) << text.status().to_string();
  EXPECT_LT(text->size(), 1000000U);
  const auto again = read_snapshot(*text, "snapshot");
  ASSERT_TRUE(again) << again.status().to_string();
  EXPECT_TRUE(*again == *machine);
}

INSTANTIATE_TEST_SUITE_P(
    All, Fixture,
    ::testing::Values(Expected{"nccl-xml/aws-p4d-24xl-topo.xml", 8, 4, 2},
                      Expected{"nccl-xml/azure-ndv2-topo.xml", 8, 1, 2},
                      Expected{"nccl-xml/azure-ndv4-topo.xml", 8, 8, 4},
                      Expected{"nccl-xml/oci-H100-topology.xml", 8, 16, 2},
                      Expected{"rccl-xml/topo_8p_942.xml", 8, 8, 2}, Expected{"hwloc-xml/g5.48xl-topo.xml", 8, 2, 2},
                      Expected{"hwloc-xml/nvidiaDGX2.xml", 16, 0, 2}, Expected{"hwloc-xml/p5.48xl-topo.xml", 8, 64, 2},
                      Expected{"sysfs/sys-class-infiniband-h100.0", 0, 9, 0}, Expected{"seed-h20", 8, 15, 2}),
    [](const auto& which) { return "Machine" + std::to_string(which.index); });

TEST(SeedH20, IsJoinedFromItsPastedOutputs) {
  REQUIRE_FIXTURES();
  const auto machine = load(fixtures() + "/seed-h20");
  ASSERT_TRUE(machine) << machine.status().to_string();
  ASSERT_GE(machine->nics.size(), 4U);
  const auto& nic = machine->nics[0];
  EXPECT_EQ(nic.name, "mlx5_bond_0");
  ASSERT_TRUE(nic.bond && nic.rdma);
  const auto& port = machine->rdma[nic.rdma.index].ports.at(0);
  EXPECT_DOUBLE_EQ(*port.rate_gbps, 200);  // 2X at 100 Gb/s a lane
  EXPECT_EQ(*port.lanes, 2U);
  EXPECT_DOUBLE_EQ(*nic_capacity_gbps(*machine, nic), 400);
  EXPECT_DOUBLE_EQ(*nic_one_flow_gbps(*machine, nic), 200);
  EXPECT_EQ(machine->bonds[nic.bond.index].legs.size(), 2U);
  EXPECT_EQ(*machine->bonds[nic.bond.index].hash_policy, "layer3+4");
  // What nobody pasted stays unknown.
  EXPECT_FALSE(nic_capacity_gbps(*machine, machine->nics[1]));
  EXPECT_TRUE(nic.functions.empty());
  EXPECT_FALSE(machine->gpus[0].pci);
}

TEST(SeedH20, SaysWhyEachInterfaceIsOrIsNoRail) {
  REQUIRE_FIXTURES();
  const auto machine = load(fixtures() + "/seed-h20");
  ASSERT_TRUE(machine) << machine.status().to_string();
  for (const auto& verdict : rail_verdicts(*machine)) {
    const auto name = node_name(*machine, verdict.node);
    EXPECT_FALSE(verdict.reason.empty()) << name;
    const bool expected = name.find("bond") != std::string::npos || name.starts_with("reth");
    EXPECT_EQ(verdict.rail, expected) << name << ": " << verdict.reason;
  }
}

TEST(Dgx2, HasSixNvLinksBetweenAllGpusOfBothBaseboards) {
  REQUIRE_FIXTURES();
  const auto machine = load(fixtures() + "/hwloc-xml/nvidiaDGX2.xml");
  if (!machine && machine.status().code() == ErrorCode::unsupported) GTEST_SKIP() << machine.status().message();
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(machine->nv_switches.size(), 12U);
  EXPECT_EQ(path_class(*machine, {NodeKind::gpu, 0}, {NodeKind::gpu, 15})->to_string(), "NV6");
  EXPECT_EQ(path_class_from_tree(*machine, {NodeKind::pci, machine->gpus[0].pci.index},
                                 {NodeKind::pci, machine->gpus[2].pci.index})
                .to_string(),
            "PXB");
}

TEST(Lint, FindsWhatTheFixturesAreKnownFor) {
  REQUIRE_FIXTURES();
  const auto has = [](const std::string& path, const std::string& rule) {
    const auto machine = load(fixtures() + "/" + path);
    if (!machine) return machine.status().code() == ErrorCode::unsupported;
    for (const auto& finding : lint(*machine)) {
      if (finding.rule == rule) return true;
    }
    return false;
  };
  EXPECT_TRUE(has("matrix/a100-8gpu-4nic-half-gpus-sys.txt", "gpu-without-near-nic"));
  EXPECT_TRUE(has("hwloc-xml/g5.48xl-topo.xml", "numa-unknown"));
  EXPECT_TRUE(has("hwloc-xml/g5.48xl-topo.xml", "link-speed-zero"));
  EXPECT_TRUE(has("nccl-xml/aws-p4d-24xl-topo.xml", "bus-id-made-up"));
  EXPECT_TRUE(has("nccl-xml/oci-H100-topology.xml", "bridge-slower-than-device"));
  EXPECT_TRUE(has("sysfs/sys-class-infiniband-h100.0", "counter-saturated"));
}

TEST(NcclExport, KeepsEveryClassOfWhatItWasReadFrom) {
  REQUIRE_FIXTURES();
  for (const char* name : {"nccl-xml/aws-p4d-24xl-topo.xml", "nccl-xml/azure-ndv4-topo.xml",
                           "nccl-xml/oci-H100-topology.xml", "rccl-xml/topo_8p_942.xml"}) {
    const auto machine = load(fixtures() + "/" + name);
    if (!machine && machine.status().code() == ErrorCode::unsupported) GTEST_SKIP() << machine.status().message();
    ASSERT_TRUE(machine) << machine.status().to_string();
    const auto exported = export_nccl_xml(*machine);
    ASSERT_TRUE(exported) << exported.status().to_string();
    EXPECT_FALSE(exported->lost.empty());
    const auto again = read_nccl_xml(exported->text, "exported");
    ASSERT_TRUE(again) << again.status().to_string();
    EXPECT_EQ(path_matrix(*again).cells, path_matrix(*machine).cells) << name;
  }
}

}  // namespace
}  // namespace fairway::topology
