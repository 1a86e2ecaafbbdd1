#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "doctor/report.h"
#include "server.h"
#include "topology/load.h"

// Two machines as operators met them.
namespace fairway::doctor::testing {
namespace {

// What ib_write_bw prints; over CUDA memory it says so before its heading.
std::string write_bw(const std::string& device, double gbps, bool gpu) {
  return fmt::format(
      "{}---------------------------------------------------------------------------------------\n"
      "                    RDMA_Write BW Test\n"
      " Dual-port       : OFF\t\tDevice         : {}\n"
      " Number of qps   : 1\t\tTransport type : IB\n"
      " Connection type : RC\t\tUsing SRQ      : OFF\n"
      " Mtu             : 4096[B]\n"
      " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
      " 1048576    5000             {:.2f}             {:.2f}              0.0100\n",
      gpu ? "initializing CUDA\nPicking device No. 0\n" : "", device, gbps, gbps);
}

TEST(DoctorStory, AVirtualMachineWhoseGpuMemoryCrawlsUsesRelaxedOrdering) {
  auto server = healthy_vm();
  for (const auto& [gbps, gpu] : {std::pair{84.0, true}, {400.0 * 0.98, false}}) {
    auto rows = read_measurements(server.now.machine, write_bw("mlx5_0", gbps, gpu), gpu ? "gpu.txt" : "host.txt", {});
    ASSERT_TRUE(rows) << rows.status().message();
    server.measured.insert(server.measured.end(), rows->begin(), rows->end());
  }
  const auto report = run(server);
  ASSERT_FALSE(report.findings.empty());
  const auto& first = report.findings.front();
  EXPECT_EQ(first.rule, "relaxed-ordering");
  EXPECT_EQ(first.confidence, Confidence::measured);
  EXPECT_NEAR(*first.loss_gbps, 392 - 84, 1);
  EXPECT_NE(first.fix.front().find("--disable_pcie_relaxed"), std::string::npos) << "the A/B that proves it";
  const auto text = text_of(report, {}, false);
  EXPECT_NE(text.find("IBV_ACCESS_RELAXED_ORDERING"), std::string::npos) << text;
  EXPECT_NE(text.find("84 Gb/s now"), std::string::npos) << text;
  // One cause: that the rail is below its port needs no finding of its own.
  EXPECT_EQ(report.findings.size(), 1U) << text;
}

TEST(DoctorStory, ThePairThatDiffersInOrderingAloneConfirmsIt) {
  auto server = healthy_vm();
  server.measured = {row(server, 0, 0, 84), row(server, 0, 0, 391), row(server, -1, 0, 392)};
  server.measured[0].relaxed = false;
  server.measured[1].relaxed = true;
  const auto report = run(server);
  const auto* found = find(report, "relaxed-ordering");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->confidence, Confidence::confirmed);
}

TEST(DoctorStory, TheH20ServersFarGpusAreSentToTheirNearNics) {
  auto machine = topology::load(std::string(FAIRWAY_SOURCE_DIR) + "/tests/machines/h20.json");
  if (!machine && machine.status().code() == ErrorCode::unsupported) GTEST_SKIP() << machine.status().message();
  ASSERT_TRUE(machine) << machine.status().message();
  Server server;
  server.now.machine = std::move(*machine);
  constexpr std::string_view kRows =
      "gpu,path,average_gbps\n0,NODE,195.06\n1,PIX,195.05\n2,NODE,178.81\n3,NODE,175.83\n4,SYS,124.38\n5,SYS,124.22\n"
      "6,SYS,124.27\n7,SYS,119.11\n";
  MeasuredOptions how;
  how.defaults.nic = 0;
  how.defaults.mode = predict::RowMode::loop;
  auto rows = read_measurements(server.now.machine, kRows, "nic0.csv", how);
  ASSERT_TRUE(rows) << rows.status().message();
  server.measured = std::move(*rows);
  const auto report = run(server);
  ASSERT_FALSE(report.findings.empty());
  const auto& first = report.findings.front();
  EXPECT_EQ(first.rule, "far-nic");
  EXPECT_EQ(first.title, "GPU4-7 cross sockets to mlx5_bond_0: use mlx5_bond_2-3 instead");
  EXPECT_NEAR(*first.mended_gbps, 195, 1);
  EXPECT_NEAR(*first.now_gbps, 123, 2);
  EXPECT_EQ(first.paths, 4U);
  EXPECT_EQ(cost_text(first), "288 Gb/s over 4 GPUs, 72 Gb/s each: 123 Gb/s now, 195 Gb/s without it");
  EXPECT_EQ(first.evidence.front().where, "nic0.csv:6 (rows)");
  EXPECT_EQ(exit_code(report.verdict), 1);
}

TEST(DoctorStory, OnlyWhatIsWorseThanTheBaselineIsAWarning) {
  auto slower = healthy();
  keep_before(slower);
  slower.now.machine.gpus[3].memory_bytes.value = 40ULL << 30U;
  EXPECT_TRUE(has(run(slower), "changed", Level::warning));

  auto faster = healthy();
  port(faster, 0).rate_gbps.value = 200;
  keep_before(faster);
  port(faster, 0).rate_gbps.value = 400;
  EXPECT_TRUE(has(run(faster), "changed"));
  EXPECT_FALSE(has(run(faster), "changed", Level::warning));
}

// As one B200 server was reported (vllm#16336): seven GPUs in the NVLink fabric, one beside it.
TEST(DoctorStory, AGpuThatNVSwitchesDoNotReachIsFound) {
  auto server = healthy();
  auto& machine = server.now.machine;
  const auto leave_out = [&] {
    std::erase_if(machine.links, [](const auto& link) {
      return link.a == topology::NodeRef{topology::NodeKind::gpu, 2};
    });
    machine.gpus[2].nvlinks.clear();
  };
  leave_out();
  const auto report = run(server);
  const auto* found = find(report, "nvlink-down");
  ASSERT_NE(found, nullptr) << text_of(report, {}, true);
  EXPECT_EQ(found->title, "GPU2 has no NVLink; 7 other GPUs have 18 each");
  EXPECT_EQ(found->level, Level::broken);
  EXPECT_GT(found->loss_gbps.value_or(0), 2000) << "PCIe in place of NVLink";
  // The same GPU behind its links, one third of which it does not have.
  auto fewer = healthy();
  fewer.now.machine.gpus[2].nvlinks.resize(12);
  ASSERT_NE(find(run(fewer), "nvlink-down"), nullptr);
  EXPECT_EQ(find(run(fewer), "nvlink-down")->level, Level::warning);
  // A card for the screen, and a GPU that MIG cuts into pieces, have none on purpose.
  machine.gpus[2].model.set("NVIDIA T1000", topology::Source::hand_written);
  EXPECT_EQ(find(run(server), "nvlink-down"), nullptr);
  auto split = healthy();
  split.now.machine.gpus[2].nvlinks.clear();
  set(split, "gpu.2.mig", "enabled");
  EXPECT_EQ(find(run(split), "nvlink-down"), nullptr);
}

TEST(DoctorStory, TwoGpusThatShareANicLoseWhatItLosesOnce) {
  const auto loss = [](bool shared) {
    auto server = healthy();
    if (shared) {
      pci_of_gpu(server, 1).parent = pci_of_nic(server, 0).parent;
      pci_of_gpu(server, 1).host_bridge = pci_of_nic(server, 0).host_bridge;
    }
    pci_of_nic(server, 0).link.width.value = 4;
    const auto report = run(server);
    const auto* found = find(report, "pcie-width");
    EXPECT_NE(found, nullptr);
    if (found == nullptr) return 0.0;
    EXPECT_EQ(found->paths, 1U);
    EXPECT_EQ(found->path, shared ? "GPU0 - mlx5_0 and 1 other" : "GPU0 - mlx5_0");
    return found->loss_gbps.value_or(0);
  };
  EXPECT_GT(loss(false), 250);
  EXPECT_NEAR(loss(true), loss(false), 0.1);
}

TEST(DoctorStory, FarGpusLoseNoMoreThanTheNicsHave) {
  auto server = healthy();
  server.now.machine.nics.resize(1);  // GPU4-7 share it
  const auto report = run(server);
  const auto* found = find(report, "no-near-nic");
  ASSERT_NE(found, nullptr);
  EXPECT_LE(found->loss_gbps.value_or(0), 400);
  // As in a cloud's server of eight L4 and one NIC: nothing to change, so a note.
  auto apart = healthy();
  apart.now.machine.nics.resize(4);
  apart.now.machine.links.clear();
  apart.now.machine.nv_switches.clear();
  for (auto& gpu : apart.now.machine.gpus) {
    gpu.nvlinks.clear();
    gpu.model.value = "NVIDIA L4";
  }
  EXPECT_TRUE(has(run(apart), "no-near-nic"));
  EXPECT_FALSE(has(run(apart), "no-near-nic", Level::warning));
  // Without the ports' rate there is no cost, but a reason and what the PCIe side would give.
  auto unknown = healthy();
  unknown.now.machine.nics.resize(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    auto& nic = unknown.now.machine.nics[i];
    nic.model.forget();
    port(unknown, i).rate_gbps.forget();
    for (const auto interface : nic.interfaces) unknown.now.machine.interfaces[interface.index].speed_gbps.forget();
  }
  const auto told = run(unknown);
  const auto* why = find(told, "no-near-nic");
  ASSERT_NE(why, nullptr);
  EXPECT_FALSE(why->loss_gbps);
  EXPECT_NE(why->advice.find("is not recorded"), std::string::npos) << why->advice;
  EXPECT_NE(why->advice.find("over GPU"), std::string::npos) << why->advice;
}

TEST(DoctorStory, WhatCpusMoveIsAtMostANote) {
  auto server = healthy();
  server.now.machine.numa_nodes.resize(1);
  auto slow = row(server, -1, 0, 8);
  slow.device.clear();
  slow.flow->to = slow.flow->from;
  slow.flow->conditions.mover = predict::Mover::cpu;
  server.measured = {slow};
  EXPECT_TRUE(has(run(server), "below-expectation")) << text_of(run(server), {}, true);
  EXPECT_FALSE(has(run(server), "below-expectation", Level::warning));
  // `fairway predict` would expect something else: it has no option for who moves the bytes.
  const auto report = run(server);
  const auto* found = find(report, "below-expectation");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->fix, std::vector<std::string>{"# measure again with nothing else running"});
}

TEST(DoctorStory, TheOneLineDoesNotGiveTheFirstFindingAnothersCost) {
  auto server = healthy_with_bonds();
  set(server, "limit.memlock", "8388608");
  pci_of_nic(server, 2).link.width.value = 8;
  EXPECT_NE(line_of(run(server)).find("Gb/s; the first is: Only 8 MiB"), std::string::npos) << line_of(run(server));
  // Alike bonds are one note.
  for (std::uint32_t i = 0; i < 4; ++i) port(server, i).rate_gbps.value = 200;
  const auto report = run(server);
  const auto* note = find(report, "bond-rate-misread");
  ASSERT_NE(note, nullptr);
  EXPECT_EQ(note->title, "mlx5_0-3: the RDMA port reports 200 Gb/s, the bond 400");
}

TEST(DoctorStory, AChangeThatARuleExplainsIsNoSecondFinding) {
  auto server = healthy();
  keep_before(server);
  pci_of_nic(server, 2).link.width.value = 8;
  port(server, 3).rate_gbps.value = 200;
  const auto report = run(server);
  ASSERT_EQ(report.findings.size(), 2U) << text_of(report, {}, true);
  for (const auto& finding : report.findings) {
    EXPECT_NE(finding.rule, "changed");
    EXPECT_TRUE(std::any_of(finding.evidence.begin(), finding.evidence.end(), [](const auto& seen) {
      return seen.where == "the baseline";
    })) << finding.title;
  }
}

TEST(DoctorStory, AGpuThatBecameIdleSinceTheBaselineIsNoWarning) {
  auto server = healthy();
  keep_before(server);
  pci_of_gpu(server, 3).link.speed_gts.value = 2.5;
  set(server, "gpu.3.load", "no");
  EXPECT_TRUE(run(server).verdict.ok) << text_of(run(server), {}, true);
}

TEST(DoctorStory, WhatIsGoneSinceTheBaselineIsOneFindingWithItsCost) {
  auto server = healthy();
  keep_before(server);
  server.before.machine.nics.emplace_back().name = "eth9";  // carries no bulk traffic
  server.now.machine.nics.resize(5);
  server.now.machine.gpus.pop_back();
  std::erase_if(server.now.machine.links, [](const auto& link) { return link.a.index == 7; });
  std::erase_if(server.now.machine.peers, [](const auto& peer) { return peer.from.index == 7 || peer.to.index == 7; });
  const auto report = run(server);
  std::size_t gone = 0;
  for (const auto& finding : report.findings) {
    EXPECT_EQ(finding.title.find("GPU links"), std::string::npos) << finding.title;
    if (finding.title.find("missing") == std::string::npos) continue;
    ++gone;
    if (finding.title.starts_with("eth9")) {
      EXPECT_EQ(finding.level, Level::note);
      continue;
    }
    if (finding.title == "GPU7 is missing since the baseline") continue;
    EXPECT_EQ(finding.title, "mlx5_5-7 are missing since the baseline");
    EXPECT_NEAR(finding.loss_gbps.value_or(0), 3 * 390, 40);
    EXPECT_NE(finding.fix.front().find("lspci"), std::string::npos);
  }
  EXPECT_EQ(gone, 3U) << text_of(report, {}, true);
}

TEST(DoctorStory, ABaselineOfAnotherMachineIsSaidAndNotCompared) {
  auto server = healthy();
  keep_before(server);
  for (auto& gpu : server.before.machine.gpus) gpu.model.value = "NVIDIA B200";
  server.before.machine.nics.resize(2);
  const auto report = run(server);
  ASSERT_EQ(report.findings.size(), 1U) << text_of(report, {}, true);
  EXPECT_NE(report.findings.front().title.find("The baseline is of another machine: NVIDIA B200 there"),
            std::string::npos)
      << report.findings.front().title;
  EXPECT_EQ(exit_code(report.verdict), 1);
}

TEST(DoctorStory, NicsWithoutTheirRdmaDevicesAreNotNone) {
  auto server = healthy();
  for (auto& nic : server.now.machine.nics) nic.rdma = {};
  server.now.machine.rdma.clear();
  const auto report = run(server);
  // What PCIe says of them needs no RDMA device.
  pci_of_nic(server, 2).link.width.value = 8;
  EXPECT_TRUE(has(run(server), "pcie-width", Level::warning)) << text_of(run(server), {}, true);
  for (const auto* rule : {"port-down", "no-near-nic", "mtu-small"}) {
    EXPECT_TRUE(std::any_of(report.not_looked.begin(), report.not_looked.end(),
                            [&](const auto& one) {
                              return one.rule == rule && one.why.find("8 NICs are not recorded") != std::string::npos;
                            }))
        << rule << "\n"
        << text_of(report, {}, true);
  }
}

TEST(DoctorStory, FixesOfARecordingNameIt) {
  auto server = healthy();
  server.now.machine.nics.resize(4);
  auto report = run(server);
  name_recording(report, "a b/c");
  const auto* found = find(report, "no-near-nic");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->fix.front().substr(0, found->fix.front().find("    #")),
            "fairway predict gpu4:remote --routes --from 'a b/c'");
}

}  // namespace
}  // namespace fairway::doctor::testing
