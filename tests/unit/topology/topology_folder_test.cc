#include <algorithm>

#include "topology/assess.h"
#include "topology/load.h"
#include "topology_support.h"

namespace fairway::topology {
namespace {

constexpr const char* kMatrix =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNODE\tPIX\tNODE\t0-3\t0\n"
    "GPU1\tNODE\t X \tNODE\tPIX\t0-3\t0\n"
    "NIC0\tPIX\tNODE\t X \tNODE\n"
    "NIC1\tNODE\tPIX\tNODE\t X \n\n"
    "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";
constexpr const char* kLspci =
    "20:02.0 PCI bridge: A bridge\n"
    "23:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200] [10de:2335] (rev a1)\n"
    "24:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    "43:00.0 3D controller: NVIDIA Corporation GH100 [H200]\n"
    "44:00.0 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n";
// A switch below each of two host bridges, a NIC and a GPU on each.
constexpr const char* kDevices =
    "total 0\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 0000:20:01.0 -> ../../../devices/pci0000:20/0000:20:01.0\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 0000:23:00.0 -> "
    "../../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/0000:22:00.0/0000:23:00.0\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 0000:43:00.0 -> "
    "../../../devices/pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:00.0/0000:43:00.0\n";
constexpr const char* kClasses =
    "/sys/class/infiniband:\ntotal 0\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 mlx5_0 -> "
    "../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/0000:22:01.0/0000:24:00.0/infiniband/mlx5_0\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 mlx5_1 -> "
    "../../devices/pci0000:40/0000:40:01.0/0000:41:00.0/0000:42:01.0/0000:44:00.0/infiniband/mlx5_1\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 rxe0 -> ../../devices/virtual/infiniband/rxe0\n\n"
    "/sys/class/net:\ntotal 0\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 eth2 -> "
    "../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/0000:22:01.0/0000:24:00.0/net/eth2\n"
    "lrwxrwxrwx 1 root root 0 Jan  1 00:00 lo -> ../../devices/virtual/net/lo\n";

const Nic* nic_named(const Machine& machine, const std::string& name) {
  const auto found =
      std::find_if(machine.nics.begin(), machine.nics.end(), [&](const Nic& nic) { return nic.name == name; });
  return found == machine.nics.end() ? nullptr : &*found;
}

TEST(Folder, LinksOfSysfsPlaceWhatOtherOutputsName) {
  const TempFolder folder;
  folder.write("matrix.txt", kMatrix);
  folder.write("lspci.txt", kLspci);
  folder.write("devices.txt", kDevices);
  folder.write("classes.txt", kClasses);
  const auto machine = load(folder.path());
  ASSERT_TRUE(machine) << machine.status().to_string();
  ASSERT_EQ(machine->gpus.size(), 2U);
  ASSERT_TRUE(machine->gpus[1].pci);
  EXPECT_EQ(machine->pci[machine->gpus[1].pci.index].bus_id.to_string(), "0000:43:00.0");
  EXPECT_EQ(*machine->gpus[0].model, "NVIDIA Corporation GH100 [H200]");
  const auto* nic = nic_named(*machine, "mlx5_0");
  ASSERT_NE(nic, nullptr);
  ASSERT_EQ(nic->functions.size(), 1U);
  EXPECT_EQ(machine->pci[nic->functions[0].index].bus_id.to_string(), "0000:24:00.0");
  EXPECT_EQ(machine->host_bridges.size(), 2U);
  // The tree says what the matrix says, and each card is one NIC.
  EXPECT_TRUE(class_conflicts(*machine).empty());
  EXPECT_EQ(
      std::count_if(machine->nics.begin(), machine->nics.end(), [](const Nic& n) { return !n.functions.empty(); }), 2);
  for (const auto& finding : lint(*machine)) {
    EXPECT_EQ(finding.rule.find("place-unknown"), std::string::npos) << finding.text;
    EXPECT_EQ(finding.rule.find("without-bus-id"), std::string::npos) << finding.text;
  }
  EXPECT_TRUE(*machine->rdma[find_rdma(*machine, "rxe0").index].software);
}

TEST(Folder, TheQueryOfGpusNamesTheirBusIds) {
  const TempFolder folder;
  folder.write("matrix.txt", kMatrix);
  folder.write("gpus.csv",
               "index, name, pci.bus_id\n0, NVIDIA H200, 00000000:43:00.0\n1, NVIDIA H200, 00000000:23:00.0\n");
  folder.write("lspci.txt", kLspci);
  const auto machine = load(folder.path());
  ASSERT_TRUE(machine) << machine.status().to_string();
  ASSERT_EQ(machine->gpus.size(), 2U);
  EXPECT_EQ(machine->pci[machine->gpus[0].pci.index].bus_id.to_string(), "0000:43:00.0");
  EXPECT_EQ(*machine->gpus[0].model, "NVIDIA H200");
}

TEST(Folder, ContradictingLinksAreAConflictAndNoCycle) {
  const TempFolder folder;
  folder.write("links.txt",
               "a -> ../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/a\n"
               "b -> ../../devices/pci0000:00/0000:01:00.0/0000:00:01.0/net/b\n"
               "c -> ../../devices/pci0000:00/0000:02:00.0/0000:02:00.0/net/c\n"
               "d -> ../../devices/pci:/0000:03:00.0/net/d\ne -> devices\nf -> ../devices/pci0000:00\n");
  const auto machine = load(folder.path());
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_TRUE(validate(*machine));
  EXPECT_TRUE(std::any_of(machine->notes.begin(), machine->notes.end(),
                          [](const Note& note) { return note.kind == NoteKind::conflict; }));
}

}  // namespace
}  // namespace fairway::topology
