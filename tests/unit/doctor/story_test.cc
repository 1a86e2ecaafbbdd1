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
  port(slower, 0).rate_gbps.value = 200;
  EXPECT_TRUE(has(run(slower), "changed", Level::warning));

  auto faster = healthy();
  port(faster, 0).rate_gbps.value = 200;
  keep_before(faster);
  port(faster, 0).rate_gbps.value = 400;
  EXPECT_TRUE(has(run(faster), "changed"));
  EXPECT_FALSE(has(run(faster), "changed", Level::warning));
}

}  // namespace
}  // namespace fairway::doctor::testing
