#include <algorithm>

#include <gtest/gtest.h>

#include "doctor/cost.h"
#include "doctor/fleet.h"
#include "server.h"
#include "topology/pci.h"

// What healthy machines look like that were called sick, and the faults that were passed over.
namespace fairway::doctor::testing {
namespace {

using namespace topology;
constexpr auto kSource = Source::hand_written;

Level level_of(const Report& report, std::string_view rule) {
  const auto* finding = find(report, rule);
  EXPECT_NE(finding, nullptr) << rule;
  return finding == nullptr ? Level::broken : finding->level;
}

// --- limits

TEST(DoctorMemlock, WhoeverMayLockWithoutLimitIsNotLimited) {
  auto server = healthy();
  set(server, "limit.memlock", "8388608");
  set(server, "limit.ipc_lock", "yes");
  EXPECT_FALSE(has(run(server), "memlock"));
  set(server, "limit.ipc_lock", "no");
  EXPECT_TRUE(has(run(server), "memlock", Level::broken));
}

// As AWS's P5: proprietary modules, and EFA's own way to GPU memory.
TEST(DoctorRegistration, EfasModuleReachesGpuMemory) {
  auto server = healthy();
  server.now.facts.forget("kernel.module.nvidia_peermem");
  set(server, "gpu.kernel_module", "proprietary");
  set(server, "gpu.dmabuf", "no");
  EXPECT_TRUE(has(run(server), "no-gpu-registration"));
  set(server, "kernel.module.efa_nv_peermem", "loaded");
  EXPECT_FALSE(has(run(server), "no-gpu-registration"));
}

// --- ports

TEST(DoctorPorts, OneOfTwoEqualRailsThatIsDownIsMissed) {
  auto server = healthy();
  server.now.machine.nics.resize(2);
  port(server, 0).state.set("ACTIVE", kSource);
  port(server, 1).state.set("DOWN", kSource);
  EXPECT_EQ(level_of(run(server), "port-down"), Level::warning);
  // And without a word on what board they are: it is the nearest NIC of a GPU.
  for (auto& rdma : server.now.machine.rdma) rdma.hca_type.forget(), rdma.board_id.forget();
  EXPECT_EQ(level_of(run(server), "port-down"), Level::warning);
}

TEST(DoctorPorts, TwoOfFourThatAreDownAreMissed) {
  auto server = healthy();
  server.now.machine.nics.resize(4);
  for (std::uint32_t i = 0; i < 4; ++i) port(server, i).state.set(i < 2 ? "ACTIVE" : "DOWN", kSource);
  EXPECT_EQ(level_of(run(server), "port-down"), Level::warning);
}

TEST(DoctorPorts, TheSparePortOfACardIsANote) {
  auto server = healthy();
  auto& machine = server.now.machine;
  for (std::uint32_t i = 0; i < 8; ++i) port(server, i).state.set("ACTIVE", kSource);
  // NIC 1 becomes the second function of NIC 0's card.
  pci_of_nic(server, 1).bus_id = pci_of_nic(server, 0).bus_id;
  pci_of_nic(server, 1).bus_id.function = 1;
  pci_of_nic(server, 1).parent = pci_of_nic(server, 0).parent;
  port(server, 1).state.set("DOWN", kSource);
  machine.links.clear();
  EXPECT_EQ(level_of(run(server), "port-down"), Level::note);
}

TEST(DoctorPorts, OfTwoPortsTheActiveOneCounts) {
  auto server = healthy();
  auto& ports = server.now.machine.rdma[server.now.machine.nics[0].rdma.index].ports;
  ports.push_back(ports.front());
  ports.front().state.set("DOWN", kSource);
  ports.front().rate_gbps.set(10, kSource);
  ports.back().number = 2;
  ports.back().state.set("ACTIVE", kSource);
  EXPECT_EQ(port_of(server.now.machine, 0)->number, 2U);
  EXPECT_DOUBLE_EQ(*nic_capacity_gbps(server.now.machine, server.now.machine.nics[0]), 400);
  EXPECT_FALSE(has(run(server), "port-down"));
}

// --- PCIe

Server narrow_slots(std::uint32_t count, double gts) {
  auto server = healthy();
  for (std::uint32_t i = 0; i < count; ++i) {
    auto& link = pci_of_nic(server, i).link;
    link.speed_gts.value = link.max_speed_gts.value = gts;
  }
  return server;
}

TEST(DoctorSlots, AMachineWhoseCardsAreAllWiredSoIsBuiltThatWay) {
  EXPECT_EQ(level_of(run(narrow_slots(8, 16)), "pcie-slot"), Level::note);
  EXPECT_TRUE(run(narrow_slots(8, 16)).verdict.ok);
  EXPECT_EQ(level_of(run(narrow_slots(1, 16)), "pcie-slot"), Level::warning) << "seven others have a better slot";
}

TEST(DoctorSlots, TwoPortsThatShareASlotOneOfWhichFillsItAreANote) {
  auto server = healthy();
  auto& link = pci_of_nic(server, 0).link;
  link.speed_gts.value = link.max_speed_gts.value = 16;
  port(server, 0).rate_gbps.value = 200;
  pci_of_nic(server, 1).bus_id = pci_of_nic(server, 0).bus_id;
  pci_of_nic(server, 1).bus_id.function = 1;
  pci_of_nic(server, 1).link = link;
  port(server, 1).rate_gbps.value = 200;
  EXPECT_EQ(level_of(run(server), "pcie-slot"), Level::note);
}

TEST(DoctorPcie, RegistersOfVirtualFunctionsSayNothing) {
  auto server = healthy_vm();
  server.now.machine.virtual_machine.set("none", kSource);
  const auto bus = "pci." + bus_of_nic(server, 0);
  set(server, bus + ".max_payload", "128");
  set(server, bus + ".max_read_request", "128");
  set(server, bus + ".relaxed_ordering", "0");
  EXPECT_TRUE(has(run(server), "pcie-max-payload"));
  set(server, bus + ".physfn", "yes");
  for (const auto* rule : {"pcie-max-payload", "pcie-max-read-request", "relaxed-ordering"})
    EXPECT_FALSE(has(run(server), rule)) << rule;
  server.now.facts.forget(bus + ".physfn");
  pci_of_nic(server, 0).device_id.set(0x101e, kSource);
  EXPECT_FALSE(has(run(server), "pcie-max-payload"));
}

// --- IOMMU

TEST(DoctorIommu, TranslationIsArm64sDefault) {
  auto server = healthy();
  server.now.machine.architecture.set("aarch64", kSource);
  for (const auto& device : server.now.machine.pci)
    set(server, "pci." + device.bus_id.to_string() + ".iommu_type", "DMA-FQ");
  EXPECT_FALSE(has(run(server), "iommu-translating"));
  set(server, "kernel.cmdline", "root=/dev/sda1 iommu=pt");
  EXPECT_EQ(level_of(run(server), "iommu-misspelled"), Level::note);
  EXPECT_NE(find(run(server), "iommu-misspelled")->fix.front().find("iommu.passthrough=1"), std::string::npos);
  server.now.machine.architecture.value = "x86_64";
  EXPECT_TRUE(has(run(server), "iommu-translating", Level::warning));
}

TEST(DoctorIommu, TheKernelsLogSaysWhatItTranslates) {
  auto server = healthy();
  for (const auto& device : server.now.machine.pci)
    server.now.facts.forget("pci." + device.bus_id.to_string() + ".iommu_type");
  EXPECT_FALSE(has(run(server), "iommu-translating"));
  set(server, "kernel.iommu.default", "Translated");
  EXPECT_TRUE(has(run(server), "iommu-translating", Level::warning));
  set(server, "kernel.iommu.default", "Passthrough");
  EXPECT_FALSE(has(run(server), "iommu-translating"));
}

// A GPU and its NIC below two root ports of one host bridge.
Server at_root_ports(const char* acs) {
  auto server = healthy();
  auto& machine = server.now.machine;
  const auto root = pci_of_gpu(server, 0).host_bridge;
  for (const bool gpu : {true, false}) {
    PciDevice port;
    port.bus_id = {0, static_cast<std::uint8_t>(gpu ? 0xd0 : 0xd1), 1, 0};
    port.kind = PciKind::root_port;
    port.host_bridge = root;
    auto& device = gpu ? pci_of_gpu(server, 0) : pci_of_nic(server, 0);
    device.parent = Ref<PciDevice>(machine.pci.size());
    device.host_bridge = root;
    set(server, "pci." + port.bus_id.to_string() + ".acs", acs);
    machine.pci.push_back(port);
  }
  return server;
}

TEST(DoctorIommu, AcsAtRootPortsCostsWhereTheIommuTranslates) {
  auto server = at_root_ports("001d");
  EXPECT_FALSE(has(run(server), "acs-redirect")) << "passthrough";
  for (const auto& device : server.now.machine.pci)
    server.now.facts.forget("pci." + device.bus_id.to_string() + ".iommu_type");
  set(server, "kernel.cmdline", "root=/dev/sda1 intel_iommu=on");
  EXPECT_TRUE(has(run(server), "acs-redirect", Level::warning));
  set(server, "kernel.cmdline", "root=/dev/sda1 intel_iommu=on iommu=pt");
  EXPECT_FALSE(has(run(server), "acs-redirect"));
  auto clear = at_root_ports("0001");
  for (const auto& device : clear.now.machine.pci)
    clear.now.facts.forget("pci." + device.bus_id.to_string() + ".iommu_type");
  set(clear, "kernel.cmdline", "root=/dev/sda1 intel_iommu=on");
  EXPECT_FALSE(has(run(clear), "acs-redirect"));
}

// --- bonds

TEST(DoctorBonds, AnActiveLegWithoutCarrierEndsAllTraffic) {
  auto server = healthy_with_bonds();
  auto& bond = server.now.machine.bonds[0];
  bond.mode.value = "active-backup";
  bond.active_leg.set(server.now.machine.interfaces[bond.legs[1].interface.index].name, kSource);
  bond.legs[0].up.value = false;
  EXPECT_EQ(level_of(run(server), "bond-leg-down"), Level::note) << "no backup is left";
  bond.legs[0].up.value = true;
  bond.legs[1].up.value = false;
  EXPECT_EQ(level_of(run(server), "bond-leg-down"), Level::broken);
}

// --- GPUs

TEST(DoctorGpus, GeForceHasNoPeerAccessByDesign) {
  auto server = healthy();
  auto& machine = server.now.machine;
  machine.peers.clear();
  for (auto& gpu : machine.gpus) gpu.model.set("AD102 [GeForce RTX 4090]", kSource);
  EXPECT_EQ(level_of(run(server), "peer-refused"), Level::note);
  for (auto& gpu : machine.gpus) gpu.model.value = "GA102 [GeForce RTX 3090]";
  EXPECT_FALSE(has(run(server), "peer-refused"));
}

TEST(DoctorGpus, FatalNvlinkXidsOfBlackwellAreBroken) {
  auto server = healthy();
  const auto bus = bus_of_gpu(server, 1);
  set(server, "kernel.xid." + bus + ".149", "NVRM: Xid (PCI:0000:81:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00");
  EXPECT_EQ(level_of(run(server), "xid"), Level::broken);
  server.now.facts.forget("kernel.xid." + bus + ".149");
  set(server, "kernel.xid." + bus + ".145", "NVRM: Xid (PCI:0000:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 11");
  EXPECT_EQ(level_of(run(server), "xid"), Level::warning);
  EXPECT_NE(find(run(server), "xid")->title.find("NVLink"), std::string::npos);
}

TEST(DoctorGpus, WhatTheXidCatalogueCallsCorrectedIsANote) {
  const auto of = [](const char* code, const char* line) {
    auto server = healthy();
    set(server, "kernel.xid." + bus_of_gpu(server, 1) + "." + code, line);
    return run(server);
  };
  const auto c2c = of("121", "NVRM: Xid (PCI:0000:81:00): 121, C2C Link corrected error threshold exceeded");
  EXPECT_EQ(level_of(c2c, "xid"), Level::note);
  EXPECT_TRUE(has(of("171", "NVRM: Xid (PCI:0000:81:00): 171, uncorrectable DRAM error"), "xid", Level::warning));
  EXPECT_FALSE(has(of("137", "NVRM: Xid (PCI:0000:81:00): 137, NVLink privilege error"), "xid"));
  EXPECT_TRUE(has(of("154",
                     "NVRM: Xid (PCI:0000:81:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node "
                     "Reboot Required)"),
                  "xid", Level::warning));
  EXPECT_FALSE(has(of("154",
                      "NVRM: Xid (PCI:0000:81:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
                      "Required) to 0x0 (None)"),
                   "xid"));
}

// --- fixes

// Every command that ends jobs or takes a port away says so.
TEST(DoctorFixes, WhatInterruptsSaysSo) {
  const std::pair<const char*, const char*> kOf[] = {{"nvidia-smi -r ", "ends every job"},
                                                     {"nvidia-smi -mig", "ends every job"},
                                                     {"restart nvidia-fabricmanager", "ends every job"},
                                                     {"mlxfwreset", "goes away"},
                                                     {"devlink dev reload", "goes away"}};
  std::size_t seen = 0;
  auto server = healthy();
  server.now.machine.gpus[3].nvlinks[0].active.value = false;
  server.now.machine.cpu_vendor.value = "AuthenticAMD";
  set(server, "gpu.2.fabric_state", "in progress");
  set(server, "gpu.4.remap_pending", "yes");
  set(server, "gpu.1.mig", "enabled");
  set(server, "mlxconfig." + bus_of_nic(server, 0) + ".MAX_ACC_OUT_READ", "44");
  set(server, "devlink." + bus_of_nic(server, 1) + ".enable_roce", "false");
  set(server, "pci." + bus_of_nic(server, 2) + ".relaxed_ordering", "0");
  for (const auto& finding : run(server).findings) {
    for (const auto& fix : finding.fix) {
      for (const auto& [command, words] : kOf) {
        if (fix.find(command) == fix.npos) continue;
        ++seen;
        EXPECT_NE(fix.find(words), fix.npos) << finding.rule << ": " << fix;
      }
    }
  }
  EXPECT_GE(seen, 7U);
}

// Numbers move when a GPU is lost: the command names the bus id.
TEST(DoctorFixes, AResetNamesTheBus) {
  auto server = healthy();
  set(server, "gpu.4.remap_pending", "yes");
  const auto report = run(server);
  ASSERT_TRUE(has(report, "gpu-memory"));
  EXPECT_NE(find(report, "gpu-memory")->fix.front().find(bus_of_gpu(server, 4)), std::string::npos);
}

TEST(DoctorBonds, WhatALegDropsIsItsBonds) {
  auto server = healthy_with_bonds();
  const auto not_checked = [&server] {
    const auto report = run(server);
    return std::any_of(report.not_looked.begin(), report.not_looked.end(),
                       [](const auto& one) { return one.rule == "nic-discards"; });
  };
  EXPECT_TRUE(not_checked()) << "no statistics of the second legs";
  for (int i = 0; i < 4; ++i) set(server, "net.eth" + std::to_string(i) + "b.stat.rx_discards_phy", "0");
  EXPECT_FALSE(not_checked()) << "a bond has none of its own";
  EXPECT_FALSE(has(run(server), "nic-discards"));
  set(server, "net.eth2b.stat.rx_discards_phy", "12000");
  const auto report = run(server);
  const auto* dropped = find(report, "nic-discards");
  ASSERT_NE(dropped, nullptr);
  ASSERT_FALSE(dropped->devices.empty());
  EXPECT_EQ(dropped->devices.front(), (topology::NodeRef{topology::NodeKind::nic, 2}));
}

TEST(DoctorBonds, PfcIsSetOnTheLegsByTheirVendorsCommand) {
  const auto fixes = [](std::uint32_t vendor) {
    auto server = healthy_with_bonds();
    pci_of_nic(server, 0).vendor_id.set(vendor, kSource);
    port(server, 0).hw_counters = {{"local_ack_timeout_err", 100000, kSource}};
    std::string out;
    const auto report = run(server);
    const auto* finding = find(report, "congestion");
    if (finding == nullptr) return out;
    for (const auto& fix : finding->fix) out += fix + "\n";
    return out;
  };
  const auto mellanox = fixes(topology::kVendorMellanox);
  EXPECT_NE(mellanox.find("mlnx_qos -i eth0 "), mellanox.npos) << mellanox;
  EXPECT_NE(mellanox.find("mlnx_qos -i eth0b "), mellanox.npos) << mellanox;
  const auto broadcom = fixes(0x14e4);
  EXPECT_NE(broadcom.find("dcb pfc set dev eth0b "), broadcom.npos) << broadcom;
  EXPECT_EQ(broadcom.find("mlnx_qos"), broadcom.npos) << broadcom;
  for (const auto& all : {mellanox, broadcom}) EXPECT_EQ(all.find("bond0"), all.npos) << all;
}

// --- cards

TEST(DoctorCards, TheBridgesOfAnIdleAmdCardRestWithIt) {
  const auto behind = [](std::uint32_t vendor) {
    auto server = healthy();
    set(server, "gpu.0.load", "no");
    auto& machine = server.now.machine;
    const auto gpu = machine.gpus[0].pci;
    const auto upstream = machine.pci[machine.pci[gpu.index].parent.index].parent;
    machine.pci[upstream.index].vendor_id.set(vendor, kSource);
    machine.pci[upstream.index].link.speed_gts.value = 2.5;
    return level_of(run(server), "pcie-speed");
  };
  EXPECT_EQ(behind(topology::kVendorAmd), Level::note);
  EXPECT_EQ(behind(0x1000), Level::warning) << "a switch of the board";
}

// --- fleets

TEST(DoctorFleets, NodesThatBootOverTheNetworkAgree) {
  std::vector<Node> nodes;
  for (int i = 0; i < 4; ++i) {
    auto server = healthy();
    set(server, "kernel.cmdline",
        "BOOT_IMAGE=/vmlinuz root=wwinit BOOTIF=01-52-54-00-00-00-0" + std::to_string(i) +
            " wwid=" + std::to_string(i) + " hostname=n" + std::to_string(i) + " iommu=pt");
    nodes.push_back({"n" + std::to_string(i), server.now, run(server)});
  }
  EXPECT_EQ(exit_code(compare_fleet(nodes), nodes), 0);
  nodes[2].found.facts.forget("kernel.cmdline");
  nodes[2].found.facts.set("kernel.cmdline", "BOOT_IMAGE=/vmlinuz root=wwinit iommu=off", "test");
  EXPECT_EQ(compare_fleet(nodes).deviations.size(), 1U);
}

}  // namespace
}  // namespace fairway::doctor::testing
