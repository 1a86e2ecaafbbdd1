#include <algorithm>

#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"

// Outputs of which grep left a part, and rules that lack what it took away.
namespace fairway::doctor::testing {
namespace {

bool is_not_checked(const Report& report, std::string_view rule) {
  return std::any_of(report.not_looked.begin(), report.not_looked.end(),
                     [rule](const NotLooked& one) { return one.rule == rule && !one.why.starts_with("partly"); });
}

std::string port(const char* device, const char* state, const char* rate) {
  return std::string("CA '") + device + "'\n\t\tState: " + state + "\n\t\tPhysical state: LinkUp\n\t\tRate: " + rate +
         "\n";
}

TEST(DoctorFilteredTexts, AStateCountsWithoutTheHeadingOfItsPort) {
  const std::string prompt = "$ ibstat | grep -E \"^CA|State|Rate|Physical\"\n";
  const auto down = beside_matrix("i.txt", prompt + port("mlx5_0", "Active", "400") + port("mlx5_1", "Down", "10"));
  EXPECT_TRUE(has(down, "port-down", Level::warning)) << line_of(down);
  const auto waits = alone(prompt + port("mlx5_0", "Active", "400") + port("mlx5_1", "Initializing", "400"));
  EXPECT_TRUE(title_of(waits, "port-down").starts_with("mlx5_1: its port is INIT")) << line_of(waits);
  const auto up = alone(prompt + port("mlx5_0", "Active", "100") + port("mlx5_1", "Active", "400"));
  EXPECT_FALSE(has(up, "port-down"));
  EXPECT_TRUE(has(up, "port-rate")) << "the rates are read too";
  // A second state is the second port's.
  const auto both = alone("CA 'mlx5_0'\n\t\tState: Active\n\t\tRate: 100\n\t\tState: Active\n\t\tRate: 100\n");
  EXPECT_EQ(both.read.at(0).state, topology::ReadState::read);
  EXPECT_FALSE(has(both, "port-down"));
}

TEST(DoctorFilteredTexts, ARuleWithoutItsInputIsNotChecked) {
  const auto matrix = beside_matrix("u.txt", "$ uname -r\n5.15.0-97-generic\n");
  for (const auto* rule : {"port-down", "relaxed-ordering"}) EXPECT_TRUE(is_not_checked(matrix, rule)) << rule;
  EXPECT_TRUE(is_not_checked(alone("$ nvidia-smi -q\nGPU 00000000:1A:00.0\n"), "pcie-emulated-bridge"));
  std::string types;
  for (const auto* device : {"mlx5_0", "mlx5_1", "mlx5_2"})
    types += std::string("CA '") + device + "'\n\tCA type: MT4129\n";
  const auto devices = alone(types);
  EXPECT_TRUE(is_not_checked(devices, "port-down"));
  EXPECT_EQ(word(devices.verdict), "unclear") << "no rule had its input";
  const auto file = [](const char* name, const char* value) {
    return std::string("/sys/class/infiniband/mlx5_0/ports/1/") + name + ":" + value + "\n";
  };
  EXPECT_TRUE(is_not_checked(alone(file("counters/port_xmit_data", "8")), "port-errors"));
  EXPECT_FALSE(is_not_checked(alone(file("counters/symbol_error", "0")), "port-errors"));
  EXPECT_TRUE(is_not_checked(alone(file("link_layer", "Ethernet") + file("hw_counters/lifespan", "10") +
                                   file("hw_counters/rx_read_requests", "10")),
                             "congestion"));
  const auto discards = alone("$ ethtool -S e1 | grep discard\n     rx_discards_phy: 0\n");
  EXPECT_TRUE(is_not_checked(discards, "port-errors"));
  EXPECT_FALSE(is_not_checked(discards, "nic-discards"));
}

const std::string kFirst = "GPU 00000000:1A:00.0\n";
const std::string kSecond = "GPU 00000000:40:00.0\n";

TEST(DoctorFilteredTexts, AStatusOfTheFabricIsGoodOrAFinding) {
  const auto with = [](const std::string& status) {
    return alone("==============NVSMI LOG==============\nAttached GPUs                             : 1\n" + kFirst +
                 "    Fabric\n        State                             : Completed\n"
                 "        Status                            : " +
                 status + "\n");
  };
  EXPECT_TRUE(has(with("Insufficient Resources"), "fabric-unhealthy", Level::warning));
  EXPECT_TRUE(has(with("Timeout"), "fabric-unhealthy", Level::warning));
  EXPECT_FALSE(has(with("Success"), "fabric-unhealthy"));
  EXPECT_FALSE(has(with("N/A"), "fabric-unhealthy"));
  EXPECT_TRUE(
      has(beside_matrix("q.csv", "index, pci.bus_id, fabric.status\n0, 00000000:01:00.0, Insufficient Resources\n"),
          "fabric-unhealthy"));
}

TEST(DoctorFilteredTexts, GpusOfABoardHaveActiveNvlinks) {
  const auto both = [](const std::string& model) {
    std::string text;
    for (const auto* number : {"0", "1"})
      text += std::string("GPU ") + number + ": " + model +
              " (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n";
    return alone(text);
  };
  EXPECT_TRUE(has(both("NVIDIA H100 80GB HBM3"), "nvlink-down", Level::warning));
  EXPECT_TRUE(has(both("NVIDIA A100-SXM4-80GB"), "nvlink-down", Level::warning));
  for (const auto* card : {"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA RTX A6000"})
    EXPECT_TRUE(has(both(card), "nvlink-down", Level::note)) << card;
}

TEST(DoctorFilteredTexts, WhereNoRuleCheckedAnythingNothingIsOk) {
  const auto path = std::string(FAIRWAY_SOURCE_DIR) + "/tests/machines/small_vm.json";
  const auto found = read_case(path);
  if (!found && found.status().code() == ErrorCode::unsupported) GTEST_SKIP() << found.status().message();
  const auto report = report_of(path);
  EXPECT_EQ(report.rules, 0U);
  EXPECT_EQ(word(report.verdict), "unclear");
  EXPECT_EQ(exit_code(report.verdict), 4);
}

}  // namespace
}  // namespace fairway::doctor::testing
