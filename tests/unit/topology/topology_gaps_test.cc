#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "topology/assess.h"
#include "topology/edges.h"
#include "topology/load.h"
#include "topology/pci.h"
#include "topology_support.h"

// What sources leave out, and what is made of the rest.
namespace fairway::topology {
namespace {

// Two sockets; a switch with a NIC and a GPU below a root port of each.
constexpr const char* kTree =
    "0000:20:01.0 PCI bridge: Intel Corporation Device 352a\n"
    "\tNUMA node: 0\n"
    "\tBus: primary=20, secondary=21, subordinate=24, sec-latency=0\n"
    "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n"
    "0000:21:00.0 PCI bridge: A switch\n"
    "\tBus: primary=21, secondary=22, subordinate=24, sec-latency=0\n"
    "\tCapabilities: [68] Express (v2) Upstream Port, MSI 00\n"
    "0000:22:00.0 PCI bridge: A switch\n"
    "\tBus: primary=22, secondary=23, subordinate=23, sec-latency=0\n"
    "\tCapabilities: [68] Express (v2) Downstream Port (Slot-), MSI 00\n"
    "0000:22:01.0 PCI bridge: A switch\n"
    "\tBus: primary=22, secondary=24, subordinate=24, sec-latency=0\n"
    "\tCapabilities: [68] Express (v2) Downstream Port (Slot-), MSI 00\n"
    "0000:23:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB]\n"
    "\tNUMA node: 0\n"
    "0000:24:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    "\tNUMA node: 0\n"
    "0000:00:1f.0 ISA bridge: Intel Corporation Device 1b81\n"
    "0000:40:01.0 PCI bridge: Intel Corporation Device 352a\n"
    "\tNUMA node: 1\n"
    "\tBus: primary=40, secondary=41, subordinate=41, sec-latency=0\n"
    "0000:41:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    "\tNUMA node: 1\n";

std::string rules_of(const Machine& machine) {
  std::string out;
  for (const auto& finding : lint(machine)) out += std::string(to_string(finding.severity)) + " " + finding.rule + "\n";
  return out;
}

TEST(Lspci, BusNumbersOfBridgesAreTheTree) {
  const TempFolder folder;
  folder.write("lspci.txt", kTree);
  for (const auto& path : {folder.path(), folder.path() + "/lspci.txt"}) {
    const auto machine = load(path);
    ASSERT_TRUE(machine) << machine.status().to_string();
    ASSERT_EQ(machine->gpus.size(), 1U);
    ASSERT_EQ(machine->nics.size(), 2U);
    const auto to = [&](std::uint32_t nic) { return path_class(*machine, {NodeKind::gpu, 0}, {NodeKind::nic, nic}); };
    const auto first = machine->nics[0].name == "0000:24:00.0" ? 0U : 1U;
    EXPECT_EQ(to(first)->kind, PathKind::pix);
    EXPECT_EQ(to(1 - first)->kind, PathKind::sys);
    EXPECT_EQ(machine->numa_nodes.size(), 2U);
    EXPECT_EQ(machine->host_bridges.size(), 2U) << "what no path is about is left out";
  }
}

// What `topo lint` itself asks for beside `lspci -vvv`: both say the same of each place.
TEST(Lspci, LinksOfSysfsAgreeWithItsTree) {
  const TempFolder folder;
  folder.write("lspci.txt", kTree);
  folder.write("classes.txt",
               "/sys/class/infiniband:\nlrwxrwxrwx 1 root root 0 Jan  1 00:00 mlx5_0 -> "
               "../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/0000:22:01.0/0000:24:00.0/infiniband/mlx5_0\n");
  const auto machine = load(folder.path());
  ASSERT_TRUE(machine) << machine.status().to_string();
  for (const auto& note : machine->notes) EXPECT_NE(note.kind, NoteKind::conflict) << note.text;
  const auto nic =
      std::find_if(machine->nics.begin(), machine->nics.end(), [](const Nic& one) { return one.name == "mlx5_0"; });
  ASSERT_NE(nic, machine->nics.end());
  ASSERT_EQ(nic->functions.size(), 1U);
  const auto path = path_class(*machine, {NodeKind::gpu, 0},
                               {NodeKind::nic, static_cast<std::uint32_t>(nic - machine->nics.begin())});
  ASSERT_TRUE(path);
  EXPECT_EQ(path->kind, PathKind::pix);
}

TEST(Lspci, CirclesAndTwoBridgesToOneBusAreSurvived) {
  const TempFolder folder;
  folder.write("lspci.txt",
               "01:00.0 PCI bridge: A\n\tBus: primary=00, secondary=01, subordinate=01\n"
               "02:00.0 PCI bridge: B\n\tBus: primary=00, secondary=01, subordinate=ff\n"
               "00:01.0 PCI bridge: C\n\tBus: primary=00, secondary=02, subordinate=03\n"
               "00:02.0 PCI bridge: D\n\tBus: primary=00, secondary=02, subordinate=03\n"
               "02:01.0 Ethernet controller: E\n\tNUMA node: 0\n03:00.0 Ethernet controller: F\n\tBus: secondary=zz\n");
  const auto machine = load(folder.path());
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(std::count_if(machine->notes.begin(), machine->notes.end(),
                          [](const Note& note) { return note.kind == NoteKind::conflict; }),
            1);
}

TEST(Lspci, TheDrawingAloneIsRefusedWithWhatToGiveInstead) {
  const TempFolder folder;
  folder.write("tree.txt", "-[0000:00]-+-00.0  Intel Corporation Device 09a2\n           +-01.0-[01]--\n");
  const auto machine = load(folder.path() + "/tree.txt");
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.status().message().find("lspci -vvv"), std::string::npos) << machine.status().message();
}

TEST(Sysfs, ALinkOfTheClassPlacesANicWithoutItsDevice) {
  const TempFolder folder;
  const auto root = std::filesystem::path(folder.path());
  std::filesystem::create_directories(root / "sys/class/infiniband");
  const auto function = root / "sys/bus/pci/devices";
  std::filesystem::create_directories(function);
  std::filesystem::create_directories(root / "sys/devices/pci0000:20/0000:20:01.0");
  // The target itself was not captured.
  std::filesystem::create_symlink("../../devices/pci0000:20/0000:20:01.0/infiniband/mlx5_0",
                                  root / "sys/class/infiniband/mlx5_0");
  std::filesystem::create_symlink("../../../devices/pci0000:20/0000:20:01.0", function / "0000:20:01.0");
  folder.write("sys/devices/pci0000:20/0000:20:01.0/class", "0x020700\n");
  folder.write("sys/devices/pci0000:20/0000:20:01.0/vendor", "0x15b3\n");
  folder.write("sys/devices/pci0000:20/0000:20:01.0/device", "0x1021\n");
  const auto machine = load(folder.path());
  ASSERT_TRUE(machine) << machine.status().to_string();
  const auto nic =
      std::find_if(machine->nics.begin(), machine->nics.end(), [](const Nic& one) { return one.name == "mlx5_0"; });
  ASSERT_NE(nic, machine->nics.end());
  ASSERT_EQ(nic->functions.size(), 1U);
  EXPECT_EQ(machine->pci[nic->functions[0].index].bus_id.to_string(), "0000:20:01.0");
  EXPECT_EQ(*nic->model, "MT2910 Family [ConnectX-7]") << "named by its ids";
}

TEST(Lspci, IdsNameWhatItDoesNotKnow) {
  const TempFolder folder;
  folder.write("nn.txt",
               "02:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2901] (rev a1)\n"
               "03:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:fff7] (rev a1)\n");
  const auto machine = load(folder.path() + "/nn.txt");
  ASSERT_TRUE(machine) << machine.status().to_string();
  ASSERT_EQ(machine->gpus.size(), 2U);
  EXPECT_EQ(machine->gpus[0].model.value_or("").substr(0, 4), "B200");
  EXPECT_EQ(machine->gpus[1].model.value_or(""), "NVIDIA Corporation Device") << "no table knows it";
  folder.write("n.txt", "02:00.0 0302: 10de:2901 (rev a1)\n");
  const auto numbers = load(folder.path() + "/n.txt");
  ASSERT_TRUE(numbers) << numbers.status().message();
  ASSERT_EQ(numbers->gpus.size(), 1U);
  EXPECT_EQ(numbers->gpus[0].model.value_or("").substr(0, 4), "B200");
}

TEST(Names, OwnTableFirstThenPciIds) {
  EXPECT_EQ(pci_device_name(0x10de, 0x2330), "H100 SXM5 80GB");
  EXPECT_EQ(pci_device_name(0x15b3, 0x1021), "MT2910 Family [ConnectX-7]");
  EXPECT_EQ(pci_device_name(0x1234, 0x5678), std::nullopt);
  constexpr std::string_view kIds =
      "\n# list\n1234  A vendor\n\t0001  One\n\t5678  Two\n\t\t1234 0001  Sub\n5678  Other\n\t0002  Three\n";
  EXPECT_EQ(pci_device_name(0x1234, 0x5678, kIds), "Two");
  EXPECT_EQ(pci_device_name(0x1234, 0x0002, kIds), std::nullopt) << "another vendor's";
}

#ifdef FAIRWAY_HAVE_PUGIXML

std::string nccl(const std::string& inside) {
  return "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"0000ffff\" arch=\"x86_64\">\n" + inside +
         "</cpu></system>\n";
}
std::string gpu(int number, const char* bus, const char* sm = "80") {
  return "<pci busid=\"" + std::string(bus) +
         "\" class=\"0x030200\" vendor=\"0x10de\" device=\"0xffff\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
         "<gpu dev=\"" +
         std::to_string(number) + "\" sm=\"" + sm + "\" rank=\"0\" gdr=\"1\"/></pci>\n";
}

TEST(Unrecorded, LinksThatTheGpusHaveAreNotTakenForAbsent) {
  const auto machine = read_nccl_xml(nccl(gpu(0, "0000:10:00.0") + gpu(1, "0000:11:00.0")), "t.xml");
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(unrecorded_gpu_links(*machine), "NVLink");
  EXPECT_FALSE(path_class(*machine, {NodeKind::gpu, 0}, {NodeKind::gpu, 1})) << "no class that pretends";
  EXPECT_NE(rules_of(*machine).find("notice gpu-links-not-recorded"), std::string::npos);
  // GPUs that have none are where PCIe puts them.
  const auto cards = read_nccl_xml(nccl(gpu(0, "0000:10:00.0", "86") + gpu(1, "0000:11:00.0", "86")), "t.xml");
  ASSERT_TRUE(cards);
  EXPECT_EQ(unrecorded_gpu_links(*cards), "");
  EXPECT_TRUE(path_class(*cards, {NodeKind::gpu, 0}, {NodeKind::gpu, 1}));
}

TEST(NcclFiles, ARepeatedBusIdLoadsWithAnErrorOfLint) {
  const auto machine = read_nccl_xml(nccl(gpu(0, "0000:10:00.0") + gpu(1, "0000:10:00.0")), "t.xml");
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(machine->gpus.size(), 2U);
  EXPECT_NE(rules_of(*machine).find("error bus-id-repeated"), std::string::npos) << rules_of(*machine);
}

TEST(XmlFiles, NothingAndEntitiesAreRefused) {
  for (const auto* text :
       {"<system version=\"1\"/>", "<topology version=\"2.0\"/>",
        "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><system version=\"1\">&b;</system>",
        "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><topology version=\"2.0\">&a;</topology>"}) {
    const auto machine = std::string_view(text).find("<topology") == std::string_view::npos
                             ? read_nccl_xml(text, "t.xml")
                             : read_hwloc_xml(text, "t.xml");
    ASSERT_FALSE(machine) << text;
    EXPECT_NE(machine.status().message().find("t.xml"), std::string::npos);
  }
}

TEST(NcclFiles, MasksThatAreSwappedShowByCpuZero) {
  const std::string text =
      "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ffff0000\" arch=\"x86_64\"/><cpu numaid=\"1\" "
      "affinity=\"0000ffff\" arch=\"x86_64\"/></system>";
  const auto machine = read_nccl_xml(text, "t.xml");
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_NE(rules_of(*machine).find("warning numa-masks-swapped"), std::string::npos) << rules_of(*machine);
}

#endif

Machine card(double one_port, bool two) {
  Machine machine;
  for (std::uint8_t function = 0; function < (two ? 2 : 1); ++function) {
    PciDevice device;
    device.bus_id = {0, 0x10, 0, function};
    device.class_code.set(0x020000, Source::hand_written);
    device.link.speed_gts.set(16, Source::hand_written);
    device.link.width.set(8, Source::hand_written);
    RdmaDevice rdma;
    rdma.name = "mlx5_" + std::to_string(function);
    RdmaPort port;
    port.rate_gbps.set(one_port, Source::hand_written);
    rdma.ports.push_back(port);
    Nic nic;
    nic.name = rdma.name;
    nic.rdma = Ref<RdmaDevice>(machine.rdma.size());
    nic.functions.emplace_back(machine.pci.size());
    machine.pci.push_back(device);
    machine.rdma.push_back(rdma);
    machine.nics.push_back(nic);
  }
  complete(machine);
  return machine;
}

TEST(Lint, PortsThatWantMoreThanTheirSlot) {
  EXPECT_NE(rules_of(card(100, true)).find("warning slot-too-small"), std::string::npos) << "200 Gb/s behind Gen4 x8";
  EXPECT_EQ(rules_of(card(100, false)).find("slot-too-small"), std::string::npos);
}

TEST(Lint, NodesThatAgreeAreNoFinding) {
  const auto machine = load(std::string(FAIRWAY_SOURCE_DIR) + "/tests/machines/h200_x4.json");
  if (!machine && machine.status().code() == ErrorCode::unsupported) GTEST_SKIP() << machine.status().message();
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(rules_of(*machine).find("numa-unlike-siblings"), std::string::npos);
}

// Three devices below one bridge, one of which says another node.
TEST(Lint, ANodeThatItsSiblingsContradict) {
  Machine made;
  made.host_bridges.emplace_back();
  for (std::uint8_t i = 0; i < 3; ++i) {
    PciDevice device;
    device.bus_id = {0, 1, i, 0};
    device.class_code.set(0x020000, Source::hand_written);
    device.host_bridge = Ref<HostBridge>(0);
    device.numa_node.set(i == 2 ? 1 : 0, Source::hand_written);
    made.pci.push_back(device);
  }
  for (std::uint32_t n = 0; n < 2; ++n) {
    NumaNode node;
    node.os_index = n;
    made.numa_nodes.push_back(node);
  }
  EXPECT_NE(rules_of(made).find("warning numa-unlike-siblings"), std::string::npos) << rules_of(made);
}

TEST(Rails, AConnectXBesideEfaManagesNvlink) {
  auto machine = card(400, true);
  EXPECT_TRUE(rail_verdict(machine, {NodeKind::rdma, 0}).rail);
  for (auto& device : machine.pci) device.vendor_id.set(0x15b3, Source::hand_written);
  EXPECT_TRUE(rail_verdict(machine, {NodeKind::rdma, 0}).rail);
  PciDevice efa;
  efa.bus_id = {0, 0x20, 0, 0};
  efa.class_code.set(0x020000, Source::hand_written);
  efa.vendor_id.set(0x1d0f, Source::hand_written);
  efa.device_id.set(0xefa1, Source::hand_written);
  machine.pci.push_back(efa);
  complete(machine);
  const auto verdict = rail_verdict(machine, {NodeKind::rdma, 0});
  EXPECT_FALSE(verdict.rail) << verdict.reason;
}

}  // namespace
}  // namespace fairway::topology
