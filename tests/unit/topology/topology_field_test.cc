// size: recordings of the field, one case each
#include <cstdio>

#include "topology/assess.h"
#include "topology/catalog.h"
#include "topology/load.h"
#include "topology/machine.h"
#include "topology/pci.h"
#include "topology/text.h"
#include "topology_support.h"

// What tools and kernels really write, and was read as something else.
namespace fairway::topology {
namespace {

Machine machine_of(const std::string& file, const std::string& text) {
  const TempFolder folder;
  folder.write(file, text);
  auto machine = load(folder.path() + "/" + file);
  EXPECT_TRUE(machine) << machine.status().message();
  return machine ? *machine : Machine{};
}

Machine folder_of(std::initializer_list<std::pair<const char*, const char*>> files) {
  const TempFolder folder;
  for (const auto& [name, text] : files) folder.write(name, text);
  auto machine = load(folder.path());
  EXPECT_TRUE(machine) << machine.status().message();
  return machine ? *machine : Machine{};
}

const char* kGpu =
    R"(<pci busid="0000:01:00.0" class="0x030200" vendor="0x10de" device="0x31c2" link_speed="32.0 GT/s PCIe"
       link_width="16">)";

#ifdef FAIRWAY_HAVE_PUGIXML

// --- NCCL's dumps

TEST(FieldNcclXml, OfSeveralHostsTheFirstIsRead) {
  const auto cpu = [](const char* hash, int numa) {
    return "<cpu host_hash=\"" + std::string(hash) + "\" numaid=\"" + std::to_string(numa) + "\" affinity=\"ff\"/>";
  };
  const auto machine =
      machine_of("topo.xml", "<system version=\"1\">" + cpu("0x1", 0) + cpu("0x1", 1) + cpu("0x2", 0) + "</system>");
  EXPECT_EQ(machine.numa_nodes.size(), 2U);
  EXPECT_EQ(machine.notes.front().kind, NoteKind::lost);
}

TEST(FieldNcclXml, C2cIsALinkToTheCpu) {
  const auto machine = machine_of(
      "topo.xml", "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"arm64\">" + std::string(kGpu) +
                      R"(<gpu dev="0" sm="103" rank="0" gdr="1"><nvlink target="fffffff:ffff:ff" count="18"
                         tclass="0x068000"/><c2c bw="400000" count="1"/></gpu></pci></cpu></system>)");
  EXPECT_DOUBLE_EQ(*c2c_gbs(machine, 0), 400);
  EXPECT_EQ(*machine.gpus[0].model, "GB300");
  EXPECT_TRUE(has_gpu_links(machine));
  for (const auto& note : machine.notes) EXPECT_EQ(note.text.find("c2c"), std::string::npos) << note.text;
  const auto written = export_nccl_xml(machine);
  ASSERT_TRUE(written) << written.status().message();
  EXPECT_NE(written->text.find("<c2c bw=\"400000\" count=\"1\""), std::string::npos) << written->text;
}

TEST(FieldNcclXml, NoActiveLinksAreDownNotMalformed) {
  const auto machine =
      machine_of("topo.xml", "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">" + std::string(kGpu) +
                                 R"(<gpu dev="0" sm="103" rank="0"><nvlink target="fffffff:ffff:ff" count="0"
                                    tclass="0x068000"/></gpu></pci></cpu></system>)");
  ASSERT_EQ(machine.links.size(), 2U) << "NVLink, and the C2C of the model";
  EXPECT_EQ(machine.links[0].active, Fact<std::uint32_t>(0, Source::nccl_xml));
  EXPECT_EQ(*machine.links[0].count, 18U);
}

TEST(FieldNcclXml, PartsOfOneGpuAreOneGpu) {
  const auto text = "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">" + std::string(kGpu) +
                    R"(<gpu dev="0" sm="100" rank="0"/><gpu dev="0" sm="100" rank="1"/></pci></cpu></system>)";
  EXPECT_EQ(machine_of("topo.xml", text).gpus.size(), 1U);
}

TEST(FieldNcclXml, TwoPortsOfOneDeviceAreOneNic) {
  const auto machine = machine_of(
      "topo.xml", R"(<system version="1"><cpu numaid="0" affinity="ff"><pci busid="0000:61:00.0" class="0x020700"
      vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s PCIe" link_width="16"><nic>
      <net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1"/><net name="mlx5_0" dev="1" speed="100000" port="2"
      guid="0x1"/></nic></pci></cpu></system>)");
  ASSERT_EQ(machine.nics.size(), 1U);
  EXPECT_EQ(machine.rdma[0].ports.size(), 2U);
  EXPECT_DOUBLE_EQ(*nic_capacity_gbps(machine, machine.nics[0]), 200);
}

// NCCL reads it with sscanf("0x%lx"), and takes equal numbers for ports of one card.
TEST(FieldNcclXml, NcclReadsTheGuidsThatAreWritten) {
  const TempFolder folder;
  write_server_tree(folder, 2, 2);
  auto machine = load(folder.path());
  ASSERT_TRUE(machine);
  machine->rdma[0].node_guid.set("b8ce:f603:00a1:b2c3", Source::sysfs);
  machine->rdma[1].node_guid.set("b8ce:f603:00a1:b2c4", Source::sysfs);
  const auto written = export_nccl_xml(*machine);
  ASSERT_TRUE(written) << written.status().message();
  std::vector<unsigned long> asics;
  for (auto at = written->text.find("guid=\""); at != std::string::npos; at = written->text.find("guid=\"", at + 1)) {
    unsigned long asic = 0;
    EXPECT_EQ(std::sscanf(written->text.c_str() + at + 6, "0x%lx", &asic), 1);
    asics.push_back(asic);
  }
  EXPECT_EQ(asics, (std::vector<unsigned long>{0xb8cef60300a1b2c3UL, 0xb8cef60300a1b2c4UL}));
}

// --- hwloc

std::string hwloc_of(const char* version, const std::string& inside) {
  return "<?xml version=\"1.0\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\"><topology version=\"" + std::string(version) +
         "\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0xf\" nodeset=\"0xf\" gp_index=\"1\">" + inside +
         "</object></topology>";
}

std::string device_of(const char* ids, const char* kind) {
  return std::string(R"(<object type="Bridge" gp_index="4" bridge_type="0-1" depth="0" bridge_pci="0000:[00-10]">
    <object type="PCIDev" gp_index="5" pci_busid="0000:01:00.0" pci_type=")") +
         ids + R"( [0000:0000] 00" pci_link_speed="31.5"><object type="OSDev" gp_index="6" name="dev0" osdev_type=")" +
         kind + R"("/></object></object>)";
}

TEST(FieldHwloc, KindsAreNumbersInTwoAndBitsInThree) {
  // 3: OpenFabrics of hwloc 2, storage and memory of hwloc 3
  EXPECT_EQ(machine_of("a.xml", hwloc_of("2.0", device_of("0207 [15b3:1021]", "3"))).rdma.size(), 1U);
  EXPECT_EQ(machine_of("a.xml", hwloc_of("3.0", device_of("0502 [1234:5678]", "3"))).rdma.size(), 0U);
  EXPECT_EQ(machine_of("a.xml", hwloc_of("3.0", device_of("0502 [1234:5678]", "2"))).interfaces.size(), 0U);
  EXPECT_EQ(machine_of("a.xml", hwloc_of("3.0", device_of("0207 [15b3:1021]", "48"))).rdma.size(), 1U);
  EXPECT_EQ(machine_of("a.xml", hwloc_of("3.0", device_of("0200 [15b3:1021]", "16"))).interfaces.size(), 1U);
}

TEST(FieldHwloc, NvlinksAreCountedByTheirGenerationsRate) {
  const auto links_of = [](const char* device, const char* mbs) {
    std::string inside = R"(<object type="Bridge" gp_index="4" bridge_type="0-1" depth="0" bridge_pci="0000:[00-10]">)";
    for (const char* bus : {"1", "2"})
      inside += std::string("<object type=\"PCIDev\" gp_index=\"1") + bus + "\" pci_busid=\"0000:0" + bus +
                ":00.0\" pci_type=\"0302 [10de:" + device + "] [0000:0000] a1\" pci_link_speed=\"63\"/>";
    std::string text = hwloc_of("2.0", inside + "</object>");
    const std::string distances =
        std::string(
            "<distances2hetero nbobjs=\"2\" kind=\"9\" name=\"NVLinkBandwidth\"><indexes length=\"19\">"
            "PCIDev:11 PCIDev:12</indexes><u64values length=\"20\">0 ") +
        mbs + " " + mbs + " 0</u64values></distances2hetero>";
    text.insert(text.rfind("</topology>"), distances);
    return machine_of("nvlink.xml", text).links;
  };
  const auto blackwell = links_of("2901", "900000");  // B200: NVLink 5
  ASSERT_EQ(blackwell.size(), 1U);
  EXPECT_EQ(blackwell[0].count.value_or(0), 18U);
  EXPECT_DOUBLE_EQ(blackwell[0].gbs_per_link.value_or(0), 50);
  const auto hopper = links_of("2330", "450000");
  ASSERT_EQ(hopper.size(), 1U);
  EXPECT_EQ(hopper[0].count.value_or(0), 18U);
  EXPECT_DOUBLE_EQ(hopper[0].gbs_per_link.value_or(0), 25);
}

TEST(FieldHwloc, MemoryWithoutCpusHidesNoNode) {
  const auto package = [](int index, const char* cpus, const char* nodes, int first, int second, int bus) {
    const auto node = [&](int os_index) {
      return "<object type=\"NUMANode\" os_index=\"" + std::to_string(os_index) + "\" cpuset=\"" + cpus +
             "\" nodeset=\"0x" + std::to_string(1 << os_index) + "\" gp_index=\"" + std::to_string(20 + os_index) +
             "\" local_memory=\"1000000\"/>";
    };
    return "<object type=\"Package\" os_index=\"" + std::to_string(index) + "\" cpuset=\"" + cpus + "\" nodeset=\"" +
           nodes + "\" gp_index=\"" + std::to_string(30 + index) + "\">" + node(first) + node(second) +
           "<object type=\"Bridge\" gp_index=\"" + std::to_string(40 + index) +
           "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[" + std::to_string(bus) + "-" +
           std::to_string(bus + 1) + "]\"><object type=\"PCIDev\" gp_index=\"" + std::to_string(50 + index) +
           "\" pci_busid=\"0000:" + std::to_string(bus) +
           ":00.0\" pci_type=\"0302 [10de:2330] [0000:0000] a1\" pci_link_speed=\"63\"/></object></object>";
  };
  const auto machine =
      machine_of("cxl.xml", hwloc_of("2.0", package(0, "0x3", "0x5", 0, 2, 10) + package(1, "0xc", "0xa", 1, 3, 80)));
  ASSERT_EQ(machine.gpus.size(), 2U);
  EXPECT_FALSE(path_class(machine, {NodeKind::gpu, 0}, {NodeKind::gpu, 1})) << "NVLink of this model is not recorded";
  EXPECT_EQ(numa_of(machine, {NodeKind::gpu, 0}), Fact<std::uint32_t>(0, Source::hwloc_xml));
  EXPECT_EQ(numa_of(machine, {NodeKind::gpu, 1}), Fact<std::uint32_t>(1, Source::hwloc_xml));
  EXPECT_TRUE(machine.numa_nodes[find_numa(machine, 2).index].cpus->empty());
  EXPECT_FALSE(machine.numa_nodes[find_numa(machine, 0).index].cpus->empty());
}

#endif

// --- PCI

TEST(FieldPci, TheWindowOfHopperIsItsBar2) {
  for (const bool hopper : {false, true}) {
    const TempFolder folder;
    const std::string device = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    folder.write("sys/devices/pci0000:00/0000:00:01.0/class", "0x060400\n");
    folder.write(device + "/class", "0x030200\n");
    folder.write(device + "/vendor", "0x10de\n");
    folder.write(device + "/device", hopper ? "0x2330\n" : "0x20b2\n");
    folder.write(device + "/resource", hopper ? "0x000038c002000000 0x000038c002ffffff 0x000000000014220c\n"
                                                "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                                                "0x000038a000000000 0x000038bfffffffff 0x000000000014220c\n"
                                                "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                                                "0x000038c000000000 0x000038c001ffffff 0x000000000014220c\n"
                                              : "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n"
                                                "0x000038a000000000 0x000038afffffffff 0x000000000014220c\n"
                                                "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                                                "0x000038c000000000 0x000038c001ffffff 0x000000000014220c\n");
    folder.link("sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0");
    const auto machine = load(folder.path());
    ASSERT_TRUE(machine) << machine.status().message();
    ASSERT_EQ(machine->gpus.size(), 1U);
    EXPECT_EQ(*machine->gpus[0].bar1_bytes, hopper ? 0x2000000000ULL : 0x1000000000ULL);
  }
}

TEST(FieldPci, NewModelsHaveNamesOfTheirOwn) {
  for (const auto& [id, name] : {std::pair{0x31c2U, "GB300"},
                                 {0x31c3U, "GB300"},
                                 {0x3182U, "B300"},
                                 {0x2bb5U, "RTX PRO 6000"},
                                 {0x2bb1U, "RTX PRO 6000"},
                                 {0x2bb3U, "RTX PRO 5000"},
                                 {0x2c31U, "RTX PRO 4500"},
                                 {0x233bU, "H200"},
                                 {0x2348U, "GH200"}}) {
    const auto found = pci_device_name(0x10de, id);
    ASSERT_TRUE(found) << name;
    EXPECT_NE(found->find(name), std::string::npos) << *found;
    EXPECT_NE(find_gpu_generation(*found), nullptr) << *found;
  }
  // PCIe cards have the bridge's links, not the board's.
  for (const char* card : {"H100 PCIe", "NVIDIA H100 PCIe", "H100 NVL"})
    EXPECT_EQ(find_gpu_generation(card)->nvlinks, 12U) << card;
  EXPECT_EQ(find_gpu_generation("NVIDIA H100 80GB HBM3")->nvlinks, 18U);
  EXPECT_EQ(find_gpu_generation("GB300")->c2c_gbs, 450);
  EXPECT_EQ(find_gpu_generation("B300 SXM6")->c2c_gbs, 0);
}

TEST(FieldPci, AConnectXThatManagesNvlinkIsNoRail) {
  const auto machine = machine_of("lspci.txt",
                                  "00:01.0 PCI bridge: Intel Corporation Device 352a\n"
                                  "\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0\n"
                                  "\tCapabilities: [60] Express (v2) Root Port (Slot+), MSI 00\n"
                                  "01:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
                                  "\tCapabilities: [48] Vital Product Data\n"
                                  "\t\tRead-only fields:\n"
                                  "\t\t\t[V3] Vendor specific: SMDL=SW_MNG\n");
  ASSERT_EQ(machine.nics.size(), 1U);
  const auto verdict = rail_verdict(machine, {NodeKind::nic, 0});
  EXPECT_FALSE(verdict.rail);
  EXPECT_NE(verdict.reason.find("NVLink"), std::string::npos) << verdict.reason;
}

TEST(FieldPci, AdaptersOfGoogleBelowAGpusSwitchAreRailsForTcp) {
  const auto machine = machine_of(
      "lspci.txt",
      "00:05.0 PCI bridge: Google, Inc. Device 1003\n\tBus: primary=00, secondary=01, subordinate=04, sec-latency=0\n"
      "01:00.0 PCI bridge: Google, Inc. Device 1004\n\tBus: primary=01, secondary=02, subordinate=04, sec-latency=0\n"
      "02:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB]\n"
      "02:01.0 Ethernet controller: Google, Inc. Titanium Network Adapter\n");
  ASSERT_EQ(machine.nics.size(), 1U);
  const auto verdict = rail_verdict(machine, {NodeKind::nic, 0});
  EXPECT_TRUE(verdict.rail);
  EXPECT_NE(verdict.reason.find("TCPX"), std::string::npos);
  ASSERT_EQ(rail_verdicts(machine).size(), 1U) << "shown, though neither interface nor RDMA device is recorded";
}

TEST(FieldPci, ThePartOfAChipThatIsGb10HasNoLinkOfItsOwn) {
  const auto machine = machine_of("lspci.txt",
                                  "000f:01:00.0 VGA compatible controller: NVIDIA Corporation GB20B [GB10] (rev a1)\n"
                                  "\tLnkCap:\tPort #0, Speed 2.5GT/s, Width x1, ASPM not supported\n"
                                  "\tLnkSta:\tSpeed 2.5GT/s (ok), Width x1 (ok)\n");
  ASSERT_EQ(machine.pci.size(), 1U);
  EXPECT_FALSE(believed_gbs(machine, machine.pci[0]));
}

TEST(FieldPci, UnknownAcceleratorsAreSeenAndNamed) {
  const auto machine = machine_of("lspci.txt",
                                  "33:00.0 Processing accelerators: Habana Labs Ltd. HL-325L [Gaudi3 AI Training and "
                                  "Inference Accelerator] (rev 01)\n"
                                  "\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\tLnkSta:\tSpeed 32GT/s, Width x8\n");
  ASSERT_EQ(machine.gpus.size(), 1U);
  EXPECT_EQ(*machine.gpus[0].vendor, "Habana");
  EXPECT_NE(machine.gpus[0].model->find("Gaudi3"), std::string::npos);
  const bool said = std::any_of(machine.notes.begin(), machine.notes.end(),
                                [](const Note& note) { return note.text.find("does not know") != std::string::npos; });
  EXPECT_TRUE(said);
}

// --- bonds, VRFs

constexpr const char* kBond =
    "Ethernet Channel Bonding Driver: v6.1.0\n\nBonding Mode: %MODE%\nMII Status: up\nMII Polling Interval (ms): "
    "%MS%\n\n"
    "Slave Interface: %A%\nMII Status: up\nSpeed: 100000 Mbps\n%X%\n"
    "Slave Interface: %B%\nMII Status: up\nSpeed: 25000 Mbps\n%Y%\n";

std::string bond_of(const char* mode, const char* ms, const char* a, const char* b, const char* x = "",
                    const char* y = "") {
  std::string text = kBond;
  for (const auto& [key, value] :
       {std::pair{"%MODE%", mode}, {"%MS%", ms}, {"%A%", a}, {"%B%", b}, {"%X%", x}, {"%Y%", y}})
    text.replace(text.find(key), std::string_view(key).size(), value);
  return text;
}

TEST(FieldBonds, LegsInTwoAggregatorsAreSeenWithoutRoot) {
  const auto text =
      bond_of("IEEE 802.3ad Dynamic link aggregation", "100", "a0", "b0", "Aggregator ID: 1\n", "Aggregator ID: 2\n");
  const auto machine = folder_of({{"bond0.txt", text.c_str()}});
  ASSERT_EQ(machine.bonds.size(), 1U);
  EXPECT_EQ(machine.bonds[0].active_aggregator, Fact<std::uint32_t>(1, Source::derived));
  EXPECT_DOUBLE_EQ(*bond_capacity_gbps(machine, machine.bonds[0]), 100) << "one of the two carries nothing";
}

TEST(FieldBonds, ALegWithoutCarrierIsDownWhateverTheBondSays) {
  const auto text = bond_of("load balancing (xor)", "0", "a0", "b0");
  const auto machine = folder_of(
      {{"bond0.txt", text.c_str()},
       {"ip_link.txt",
        "8: a0: <BROADCAST,MULTICAST,SLAVE,UP,LOWER_UP> mtu 1500 qdisc noqueue master bond0 state UP mode DEFAULT\n"
        "10: b0: <NO-CARRIER,BROADCAST,MULTICAST,SLAVE,UP> mtu 1500 qdisc noqueue master bond0 state DOWN mode "
        "DEFAULT\n"
        "11: bond0: <BROADCAST,MULTICAST,MASTER,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT\n"}});
  ASSERT_EQ(machine.bonds.size(), 1U);
  EXPECT_TRUE(*machine.bonds[0].legs[0].up);
  EXPECT_FALSE(*machine.bonds[0].legs[1].up);
  EXPECT_EQ(*machine.bonds[0].watch_ms, 0U);
}

TEST(FieldBonds, OfActiveBackupTheActiveLegCounts) {
  auto text = bond_of("fault-tolerance (active-backup)", "100", "a0", "b0");
  text.insert(text.find("MII Status"), "Currently Active Slave: b0\n");
  const auto machine = folder_of({{"bond0.txt", text.c_str()}});
  ASSERT_EQ(machine.bonds.size(), 1U);
  EXPECT_DOUBLE_EQ(*bond_capacity_gbps(machine, machine.bonds[0]), 25);
}

TEST(FieldBonds, SeveralInOneTextAreSeveral) {
  const auto text = bond_of("IEEE 802.3ad", "100", "eth0", "eth1") + bond_of("IEEE 802.3ad", "100", "eth2", "eth3");
  const auto line = [](const char* name, const char* master) {
    return std::string("2: ") + name + ": <BROADCAST,SLAVE,UP,LOWER_UP> mtu 9000 qdisc mq master " + master +
           " state UP\n";
  };
  const auto links = line("eth0", "bond0") + line("eth1", "bond0") + line("eth2", "bond1") + line("eth3", "bond1");
  const auto machine = folder_of({{"all_bonds.txt", text.c_str()}, {"ip_link.txt", links.c_str()}});
  ASSERT_EQ(machine.bonds.size(), 2U);
  for (const auto& bond : machine.bonds) EXPECT_EQ(bond.legs.size(), 2U);
}

TEST(FieldBonds, AVrfIsNone) {
  const auto machine = folder_of(
      {{"ip_link.txt",
        "4: vrf-blue: <NOARP,MASTER,UP,LOWER_UP> mtu 65575 qdisc noqueue state UP mode DEFAULT group default qlen "
        "1000\n"
        "6: nica: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master vrf-blue state UP mode DEFAULT\n"
        "8: nicb: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue master vrf-blue state DOWN mode "
        "DEFAULT\n"}});
  EXPECT_TRUE(machine.bonds.empty());
  const auto vrf = find_interface(machine, "vrf-blue");
  ASSERT_TRUE(vrf);
  EXPECT_EQ(machine.interfaces[vrf.index].kind, InterfaceKind::other);
}

TEST(FieldBonds, OneLineEachIsOneState) {
  const auto machine = folder_of(
      {{"ip_link.txt",
        "8: a0: <BROADCAST,MULTICAST,SLAVE,UP,LOWER_UP> mtu 1500 qdisc noqueue master bond0 state UP mode DEFAULT qlen "
        "1000\\    link/ether 5e:75:7f:c7:2d:3b brd ff:ff:ff:ff:ff:ff promiscuity 0 \\    bond_slave state BACKUP "
        "mii_status UP\n"}});
  for (const auto& note : machine.notes) EXPECT_NE(note.kind, NoteKind::conflict) << note.text;
}

// --- values

TEST(FieldValues, OneConstantForRoceMtus) {
  EXPECT_EQ(roce_mtu(4192), 4096U);
  EXPECT_EQ(roce_mtu(4191), 2048U) << "96 bytes are headers";
  EXPECT_EQ(roce_mtu(1500), 1024U);
  EXPECT_EQ(roce_mtu(300), std::nullopt);
}

TEST(FieldValues, RecordingsWriteNothingToTheTerminal) {
#ifdef FAIRWAY_HAVE_JSON
  Machine machine;
  machine.name = "a\x1b]0;evil\ab\xc2\x9b\xef\xbf\xbe \xc3\xa9";
  const auto text = write_snapshot(machine);
  ASSERT_TRUE(text) << text.status().message();
  const auto read = read_snapshot(*text, "x.json");
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(read->name, "a?]0;evil?b?? \xc3\xa9");
#endif
}

TEST(FieldValues, TheMatrixCallsGpusByTheirOwnNumbers) {
  Machine machine;
  for (const std::uint32_t number : {0U, 2U, 3U}) {
    Gpu gpu;
    gpu.ordinal = number;
    machine.gpus.push_back(gpu);
  }
  EXPECT_EQ(path_matrix(machine).names, (std::vector<std::string>{"GPU0", "GPU2", "GPU3"}));
}

TEST(FieldValues, TwoGpusOfOneNumberAreRefused) {
  Machine machine;
  machine.gpus.resize(2);
  EXPECT_FALSE(validate(machine));
  machine.gpus[1].ordinal = 1;
  EXPECT_TRUE(validate(machine));
}

TEST(FieldValues, AGuestIsKnownByVirtioAndDevicesOnTheRootBus) {
  const std::string virtio = "00:03.0 Ethernet controller: Red Hat, Inc. Virtio 1.0 network device (rev 01)\n";
  const std::string gpu = "00:06.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n";
  EXPECT_TRUE(is_virtual(machine_of("lspci.txt", virtio + gpu)));
  // Cards of clouds give virtio to bare metal.
  EXPECT_FALSE(is_virtual(machine_of("lspci.txt", virtio + "41:00.0 3D controller: NVIDIA Corporation GH100\n")));
}

TEST(FieldValues, ManyVirtualFunctionsAreNotTooMuchForNccl) {
  Machine machine;
  for (std::uint32_t i = 0; i < 500; ++i) {
    PciDevice device;
    device.bus_id = {1, static_cast<std::uint8_t>(i / 256), static_cast<std::uint8_t>(i / 8 % 32),
                     static_cast<std::uint8_t>(i % 8)};
    device.class_code.set(0x020000, Source::sysfs);
    device.vendor_id.set(0x15b3, Source::sysfs);
    machine.pci.push_back(device);
  }
  complete(machine);
  for (const auto& finding : lint(machine)) EXPECT_NE(finding.rule, "more-than-nccl-takes") << finding.text;
}

}  // namespace
}  // namespace fairway::topology
