#include <filesystem>

#include <gtest/gtest.h>

#include "doctor/report.h"
#include "server.h"

namespace fairway::doctor::testing {
namespace {

Report examined(const Case& found) {
  const predict::Model model(found.machine);
  return examine({model, found.facts, {}, nullptr, nullptr});
}

std::string serious(const Report& report) {
  std::string out;
  for (const auto& finding : report.findings) {
    if (finding.level != Level::note) out += finding.rule + ": " + finding.title + "\n";
  }
  return out;
}

// Machines of the tree, all healthy as far as their recordings say.
class HealthyMachine : public ::testing::TestWithParam<const char*> {};

TEST_P(HealthyMachine, GivesNoFindingOfWarningOrMore) {
  const auto found = read_case(std::string(FAIRWAY_SOURCE_DIR) + "/tests/machines/" + GetParam() + ".json");
  if (!found && found.status().code() == ErrorCode::unsupported) GTEST_SKIP() << found.status().message();
  ASSERT_TRUE(found) << found.status().message();
  const auto report = examined(*found);
  EXPECT_EQ(serious(report), "");
  EXPECT_TRUE(report.verdict.ok);
}

INSTANTIATE_TEST_SUITE_P(Doctor, HealthyMachine,
                         ::testing::Values("dgx1v", "h20", "h200_x1", "h200_x2", "h200_x4", "mi250x",
                                           "nvlink_bridge_pair", "small_vm"),
                         [](const auto& one) { return std::string(one.param); });

// A guest of software devices that nobody gave addresses, on cards of different MTU: sick, as a lab may be.
TEST(DoctorRecording, TheLabWithoutAddressesIsDegraded) {
  const auto found = read_case(std::string(FAIRWAY_SOURCE_DIR) + "/tests/machines/vm_two_sockets.json");
  if (!found && found.status().code() == ErrorCode::unsupported) GTEST_SKIP() << found.status().message();
  ASSERT_TRUE(found) << found.status().message();
  const auto report = examined(*found);
  EXPECT_TRUE(has(report, "gid-unroutable", Level::warning));
  EXPECT_TRUE(has(report, "mtu-differs", Level::warning));
}

// Recordings beside the tree, where they are: of other people's machines, so not in it.
class HealthyRecording : public ::testing::TestWithParam<const char*> {};

TEST_P(HealthyRecording, GivesNoFindingOfWarningOrMore) {
  const auto path = std::string(FAIRWAY_SOURCE_DIR) + "/../shared/fixtures/" + GetParam();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no recordings beside the tree: " << path;
  const auto found = read_case(path);
  if (!found && found.status().code() == ErrorCode::unsupported) GTEST_SKIP() << found.status().message();
  ASSERT_TRUE(found) << found.status().message();
  EXPECT_EQ(serious(examined(*found)), "");
}

// The one that is left out is sick: GPU4-7 of matrix/a100-8gpu-4nic-half-gpus-sys.txt have no near NIC.
INSTANTIATE_TEST_SUITE_P(Doctor, HealthyRecording,
                         ::testing::Values("hwloc-xml/g5.48xl-topo.xml", "hwloc-xml/nvidiaDGX2.xml",
                                           "hwloc-xml/p5.48xl-topo.xml", "nccl-xml/aws-p4d-24xl-topo.xml",
                                           "nccl-xml/azure-ndv2-topo.xml", "nccl-xml/azure-ndv4-topo.xml",
                                           "nccl-xml/oci-H100-topology.xml", "rccl-xml/topo_8p_942.xml",
                                           "matrix/oldformat-6gpu-2nic-device-names.txt", "seed-h20",
                                           "sysfs/sys-class-infiniband-h100.0"),
                         [](const auto& one) {
                           std::string name = one.param;
                           for (auto& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

TEST(DoctorRecording, TheServerWithoutNearNicsIsDegraded) {
  const auto path = std::string(FAIRWAY_SOURCE_DIR) + "/../shared/fixtures/matrix/a100-8gpu-4nic-half-gpus-sys.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no recordings beside the tree: " << path;
  const auto found = read_case(path);
  ASSERT_TRUE(found);
  EXPECT_TRUE(has(examined(*found), "no-near-nic", Level::warning));
}

TEST(DoctorRecording, ReportsAreCompleteInEveryForm) {
  auto server = healthy();
  server.now.machine.name = "a <b> & \"c\"";
  pci_of_nic(server, 2).link.width.value = 8;
  set(server, "limit.memlock", "8388608");
  const auto report = run(server);
  EXPECT_EQ(exit_code(report.verdict), 2);
  EXPECT_EQ(line_of(report).substr(0, 7), "broken:");
  const auto html = html_of(server.now.machine, report);
  EXPECT_NE(html.find("fault-warning"), std::string::npos) << "no fault in the picture";
  EXPECT_EQ(html.find("<b> &"), std::string::npos) << "a name is not escaped";
  EXPECT_NE(html.find(":root{color-scheme:light dark}"), std::string::npos) << "white around a dark picture";
  for (const auto* outside : {"src=", "href=", "@import", "url("})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  const auto prom = prom_of(report);
  EXPECT_NE(prom.find("fairway_doctor_verdict 2\n"), std::string::npos);
  EXPECT_NE(prom.find("fairway_doctor_loss_bytes_per_second{rule=\"pcie-width\""), std::string::npos) << prom;
#ifdef FAIRWAY_HAVE_JSON
  const auto json = json_of(server.now.machine, report);
  ASSERT_TRUE(json);
  EXPECT_NE(json->find("\"verdict\": \"broken\""), std::string::npos);
  EXPECT_NE(json->find("\"loss_bits_per_second\": null"), std::string::npos) << "unknown is null";
#endif
}

}  // namespace
}  // namespace fairway::doctor::testing
