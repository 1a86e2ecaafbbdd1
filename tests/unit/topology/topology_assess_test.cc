#include <algorithm>

#include <gtest/gtest.h>

#include "machines/build_machines.h"
#include "topology/assess.h"
#include "topology/load.h"

namespace fairway::topology {
namespace {

bool has_rule(const std::vector<Finding>& findings, const std::string& rule) {
  return std::any_of(findings.begin(), findings.end(),
                     [&rule](const Finding& finding) { return finding.rule == rule; });
}

void swap_masks(Machine& machine) {
  const auto first = machine.numa_nodes[0].cpus;
  machine.numa_nodes[0].cpus = machine.numa_nodes[1].cpus;
  machine.numa_nodes[1].cpus = first;
}

Ref<PciDevice> function_of(const Machine& machine, const std::string& nic) {
  for (const auto& candidate : machine.nics) {
    if (candidate.name == nic) return candidate.functions.at(0);
  }
  return {};
}

TEST(Lint, OfASoundMachineIsEmpty) {
  EXPECT_TRUE(lint(machines::h100_host("host")).empty());
  EXPECT_TRUE(lint(machines::dgx1v()).empty());
}

TEST(Lint, WhatItLeavesOutIsCountedAndTheWorstStays) {
  Machine machine;
  for (std::uint32_t i = 0; i < 1200; ++i) {
    NumaNode node;
    node.os_index = i;
    node.cpus.set(*CpuSet::parse_list(i < 1198 ? std::to_string(i) : "0"), Source::sysfs);  // the last two overlap
    machine.numa_nodes.push_back(node);
    Gpu gpu;
    gpu.ordinal = i;
    gpu.pci = Ref<PciDevice>(machine.pci.size());
    PciDevice device;
    device.bus_id = *BusId::parse(fmt::format("{:04x}:00:00.0", i));
    device.numa_node.set(5000, Source::sysfs);  // which no machine has
    machine.pci.push_back(device);
    machine.gpus.push_back(gpu);
  }
  const auto findings = lint(machine);
  ASSERT_EQ(findings.size(), 1001U);
  EXPECT_EQ(findings.back().rule, "findings-left-out");
  EXPECT_EQ(findings.front().severity, Severity::error);
}

TEST(Lint, AMatrixThatIsCutOffIsNamed) {
  Machine machine;
  for (std::uint32_t i = 0; i < 2049; ++i) machine.nics.emplace_back().name = fmt::format("eth{}", i);
  const auto findings = lint(machine);
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [](const Finding& one) {
    return one.rule == "matrix-cut-off" && one.subject == "2049 GPUs and NICs";
  }));
  machine.nics.pop_back();
  for (const auto& one : lint(machine)) EXPECT_NE(one.rule, "matrix-cut-off");
}

TEST(Lint, FindsOverlappingMasks) {
  auto machine = machines::h100_host("host");
  machine.numa_nodes[1].cpus = machine.numa_nodes[0].cpus;
  EXPECT_TRUE(has_rule(lint(machine), "numa-masks-overlap"));
}

TEST(Lint, FindsSwappedMasks) {
  auto machine = machines::h100_host("host");
  for (std::uint32_t i = 0; i < 8; ++i) machine.gpus[i].cpus = machine.numa_nodes[i < 4 ? 0 : 1].cpus;
  swap_masks(machine);
  EXPECT_TRUE(has_rule(lint(machine), "numa-masks-swapped"));
}

TEST(Lint, FindsAnEmulatedBridgeAboveGen5) {
  auto machine = machines::h100_host("host");
  for (auto& device : machine.pci) {
    if (device.kind != PciKind::switch_upstream) continue;
    device.link.speed_gts.set(2.5, Source::sysfs);
    device.link.width.set(1, Source::sysfs);
  }
  EXPECT_TRUE(has_rule(lint(machine), "bridge-slower-than-device"));
}

TEST(Lint, FindsNarrowZeroAndAbsurdLinks) {
  auto machine = machines::h100_host("host");
  machine.pci[machine.gpus[0].pci.index].link.width.set(8, Source::sysfs);
  machine.pci[machine.gpus[1].pci.index].link.speed_gts.set(0, Source::sysfs);
  machine.pci[machine.gpus[2].pci.index].link.speed_gts.set(900, Source::sysfs);
  const auto findings = lint(machine);
  EXPECT_TRUE(has_rule(findings, "link-narrow"));
  EXPECT_TRUE(has_rule(findings, "link-speed-zero"));
  EXPECT_TRUE(has_rule(findings, "link-speed-absurd"));
  EXPECT_EQ(findings.front().severity, Severity::error);
}

TEST(Lint, FindsMoreNodesThanNcclTakes) {
  Machine machine;
  machine.gpus.resize(300);  // more than NCCL takes up to 2.26
  ASSERT_TRUE(has_rule(lint(machine), "more-than-nccl-takes"));
  machine.gpus.resize(700);  // more than any release takes
  for (const auto& finding : lint(machine)) {
    if (finding.rule == "more-than-nccl-takes") {
      EXPECT_EQ(finding.severity, Severity::error);
    }
  }
}

TEST(LintAgainst, FindsWhatTheMachineContradicts) {
  const auto machine = machines::h100_host("host");
  auto file = machine;
  EXPECT_TRUE(lint_against(file, machine).empty());
  swap_masks(file);
  file.pci[file.gpus[3].pci.index].bus_id.bus = 0xfe;
  const auto findings = lint_against(file, machine);
  EXPECT_TRUE(has_rule(findings, "numa-masks-swapped"));
  EXPECT_TRUE(has_rule(findings, "bus-id-does-not-exist"));
}

TEST(Diff, OfEqualMachinesIsEmpty) {
  EXPECT_TRUE(diff(machines::dgx1v(), machines::dgx1v()).empty());
}

TEST(Diff, RanksHalfTheLanesBeforeFirmwareAndDriver) {
  const auto a = machines::h100_host("a");
  auto b = machines::h100_host("b");
  b.gpu_driver.set("580", Source::nvml);
  b.rdma[1].firmware.set("2", Source::sysfs);
  b.pci[function_of(b, "mlx5_2").index].link.width.set(8, Source::sysfs);
  auto named = a;
  named.gpu_driver.set("570", Source::nvml);
  named.rdma[1].firmware.set("1", Source::sysfs);
  const auto differences = diff(named, b);
  ASSERT_EQ(differences.size(), 3U);
  EXPECT_EQ(differences[0].field, "PCIe width");
  EXPECT_EQ(differences[0].subject, "NIC mlx5_2");
  EXPECT_NEAR(differences[0].cost, 0.5, 1e-9);
}

TEST(Diff, FindsLinksThatAreDown) {
  const auto a = machines::dgx1v();
  auto b = a;
  b.links[0].active.set(0, Source::nvml);
  const auto differences = diff(a, b);
  EXPECT_TRUE(std::any_of(differences.begin(), differences.end(),
                          [](const Difference& d) { return d.field == "GPU links that are up"; }));
}

TEST(Diff, PrintsTwoTextsThatDiffer) {
  auto a = machines::h100_host("a");
  auto b = machines::h100_host("b");
  a.numa_nodes[0].memory_bytes.set(5'080'000'000, Source::sysfs);
  b.numa_nodes[0].memory_bytes.set(4'920'000'000, Source::sysfs);
  a.gpus[0].memory_bytes.set(85'031'100'001, Source::nvml);
  b.gpus[0].memory_bytes.set(84'900'000'000, Source::nvml);
  const auto differences = diff(a, b);
  ASSERT_EQ(differences.size(), 2U);
  for (const auto& difference : differences) EXPECT_NE(difference.a, difference.b);
  EXPECT_EQ(differences[0].a, "5.08 GB");
  EXPECT_EQ(differences[0].b, "4.92 GB");
}

TEST(Diff, ComparesTheHostsMemoryWhereTheNodesDoNotTell) {
  auto a = machines::h100_host("a");
  auto b = machines::h100_host("b");
  for (auto* machine : {&a, &b})
    for (auto& node : machine->numa_nodes) node.memory_bytes.forget();
  a.memory_bytes.set(512'000'000'000, Source::procfs);
  b.memory_bytes.set(448'000'000'000, Source::procfs);
  const auto differences = diff(a, b);
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].subject, "machine");
  EXPECT_EQ(differences[0].field, "memory");
}

TEST(Lint, SaysWhatIsMissingToPlaceADevice) {
  Machine machine;
  machine.rdma.emplace_back().name = "mlx5_0";
  PciDevice function;
  function.bus_id = *BusId::parse("0001:08:00.0");
  function.class_code.set(0x020000, Source::lspci);
  machine.pci.push_back(function);
  machine.gpus.emplace_back();
  complete(machine);
  const auto findings = lint(machine);
  for (const char* rule : {"nic-place-unknown", "nic-without-bus-id", "gpu-without-bus-id"}) {
    const auto found = std::find_if(findings.begin(), findings.end(), [rule](const auto& f) { return f.rule == rule; });
    ASSERT_NE(found, findings.end()) << rule;
    EXPECT_EQ(found->severity, Severity::notice);
  }
}

TEST(NicsForGpu, PutTheNicBehindItsSwitchFirst) {
  const auto machine = machines::h100_host("host");
  for (std::uint32_t gpu = 0; gpu < 8; ++gpu) {
    const auto choices = nics_for_gpu(machine, Ref<Gpu>(std::size_t{gpu}));
    ASSERT_EQ(choices.size(), 8U);
    EXPECT_EQ(machine.nics[choices[0].nic.index].name, "mlx5_" + std::to_string(gpu));
    EXPECT_EQ(choices[0].path.to_string(), "PIX");
    EXPECT_DOUBLE_EQ(*choices[0].gbs, 50);
    EXPECT_FALSE(choices[0].reason.empty());
    EXPECT_EQ(choices.back().path.to_string(), "SYS");
  }
}

TEST(NicsForGpu, SaysSocketsOnlyWhereThereAreSeveral) {
  const auto one = nics_for_gpu(machines::mi250x(), Ref<Gpu>(std::size_t{0}));
  EXPECT_NE(one.back().reason.find("SYS: across NUMA nodes of one socket"), std::string::npos) << one.back().reason;
  const auto two = nics_for_gpu(machines::dgx1v(), Ref<Gpu>(std::size_t{0}));
  EXPECT_NE(two.back().reason.find("SYS: across sockets"), std::string::npos) << two.back().reason;
}

TEST(NicsForGpu, PutAPortThatIsDownLast) {
  auto machine = machines::h100_host("host");
  machine.rdma[0].ports[0].state.set("DOWN", Source::sysfs);
  const auto choices = nics_for_gpu(machine, Ref<Gpu>(std::size_t{0}));
  EXPECT_EQ(machine.nics[choices.back().nic.index].name, "mlx5_0");
  EXPECT_FALSE(choices.back().rail);
}

TEST(Rails, SoftRoceAndManagementPortsAreNone) {
  Machine machine;
  RdmaDevice rxe;
  rxe.name = "rxe0";
  rxe.software.set(true, Source::sysfs);
  machine.rdma.push_back(rxe);
  NetInterface port;
  port.name = "eth0";
  port.kind = InterfaceKind::physical;
  port.driver.set("virtio_net", Source::sysfs);
  port.speed_gbps.set(100, Source::sysfs);
  machine.interfaces.push_back(port);
  complete(machine);
  for (const auto& verdict : rail_verdicts(machine)) {
    EXPECT_FALSE(verdict.rail) << verdict.reason;
    EXPECT_FALSE(verdict.reason.empty());
  }
}

TEST(Edges, FunctionsOfOneCardShareTheirLink) {
  auto machine = machines::nvlink_bridge_pair();
  auto second = machine.pci[function_of(machine, "mlx5_0").index];
  second.bus_id.function = 1;
  machine.pci.push_back(second);
  complete(machine);
  std::vector<Edge> to_nics;
  for (const auto& edge : edges(machine)) {
    if (edge.kind == EdgeKind::pcie && edge.b.kind == NodeKind::nic) to_nics.push_back(edge);
  }
  ASSERT_EQ(to_nics.size(), 2U);
  EXPECT_EQ(to_nics[0].physical, to_nics[1].physical);
}

TEST(Export, LeavesOutWhatEmulatedLinksClaim) {
  auto machine = machines::h100_host("host");
  for (auto& device : machine.pci) {
    if (device.kind == PciKind::endpoint) continue;
    device.link.speed_gts.set(2.5, Source::sysfs);
    device.link.width.set(1, Source::sysfs);
  }
  const auto real = export_nccl_xml(machine);
  if (!real && real.status().code() == ErrorCode::unsupported) GTEST_SKIP() << real.status().message();
  EXPECT_NE(real->text.find("\"2.5 GT/s"), std::string::npos);
  machine.virtual_machine.set("QEMU", Source::sysfs);
  const auto emulated = export_nccl_xml(machine);
  ASSERT_TRUE(emulated) << emulated.status().to_string();
  EXPECT_EQ(emulated->text.find("\"2.5 GT/s"), std::string::npos);
  EXPECT_FALSE(emulated->lost.empty());
}

TEST(Export, ReadsBackWithTheSameClassesUpToNode) {
  const auto machine = machines::h100_host("host");
  const auto nccl = export_nccl_xml(machine);
  if (!nccl && nccl.status().code() == ErrorCode::unsupported) GTEST_SKIP() << nccl.status().message();
  ASSERT_TRUE(nccl) << nccl.status().to_string();
  const auto again = read_nccl_xml(nccl->text, "exported");
  ASSERT_TRUE(again) << again.status().to_string();
  auto expected = path_matrix(machine).cells;
  for (auto& cell : expected) {
    if (cell.kind == PathKind::node) cell.kind = PathKind::phb;  // the format has no host bridges
  }
  EXPECT_EQ(path_matrix(*again).cells, expected);
}

}  // namespace
}  // namespace fairway::topology
