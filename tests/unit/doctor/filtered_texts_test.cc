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

TEST(DoctorFilteredTexts, AFieldWhoseNameIsEnoughNeedsNoHeading) {
  const std::string good =
      "            SRAM Uncorrectable            : 0\n            DRAM Uncorrectable            : 0\n";
  const std::string bad =
      "            SRAM Uncorrectable            : 0\n            DRAM Uncorrectable            : 14\n";
  const std::string prompt = "$ nvidia-smi -q | grep -E \"^GPU|...\"\n";
  const auto errors = alone(prompt + kFirst + good + kSecond + bad);
  EXPECT_TRUE(title_of(errors, "gpu-memory").starts_with("GPU1: 14 uncorrected memory errors")) << line_of(errors);
  // The second of its kind counts since the GPU was made.
  EXPECT_TRUE(title_of(alone(prompt + kFirst + bad + bad), "gpu-memory").starts_with("GPU0: 14 "));
  EXPECT_FALSE(has(alone(prompt + kFirst + good + bad + kSecond + good), "gpu-memory"));
  const std::string state = "        State                             : ";
  const std::string status = "        Status                            : ";
  const auto waits = alone(prompt + kFirst + state + "Completed\n" + status + "Success\n" + kSecond + state +
                           "In Progress\n" + status + "N/A\n");
  EXPECT_TRUE(title_of(waits, "fabric-not-ready").starts_with("GPU1: ")) << line_of(waits);
  EXPECT_FALSE(has(waits, "fabric-unhealthy"));
  const auto link = [](const char* width) {
    return std::string(
               "                Max                       : 5\n                Current                   : 5\n") +
           "                Max                       : 16x\n                Current                   : " + width +
           "\n";
  };
  const auto narrow = alone(prompt + kFirst + link("16x") + kSecond + link("8x"));
  EXPECT_TRUE(has(narrow, "pcie-width", Level::warning)) << line_of(narrow);
  EXPECT_EQ(word(alone(prompt + kFirst + link("16x") + kSecond + link("16x")).verdict), "ok");
  EXPECT_TRUE(has(alone(prompt + kFirst + "        Pending                           : Yes\n"), "gpu-memory"));
}

TEST(DoctorFilteredTexts, AFieldThatNeedsItsHeadingIsNamedAsNotUsed) {
  const std::string prompt = "$ nvidia-smi -q | grep -E \"^GPU|Persistence|Current  |Total  \"\n";
  const std::string fields =
      "    Persistence Mode                      : Enabled\n        Current                           : Enabled\n"
      "        Total                             : 81559 MiB\n";
  const auto report = alone(prompt + kFirst + fields + kSecond + fields);
  EXPECT_EQ(word(report.verdict), "unclear");
  EXPECT_EQ(exit_code(report.verdict), 4);
  EXPECT_NE(text_of(report, {}, true).find("fields without their heading"), std::string::npos);
  // The last heading of one GPU is none of the next, nor of what stands to the left of it.
  const std::string width = "            Link Width\n                Max                       : 16x\n";
  const auto stale = alone(prompt + kFirst + width + "                Current                   : 16x\n" + kSecond +
                           "                Current                   : 4\n" + width +
                           "                Current                   : 16x\n");
  EXPECT_FALSE(has(stale, "pcie-width")) << title_of(stale, "pcie-width");
}

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

TEST(DoctorFilteredTexts, AGpuOfUnknownNumberIsCalledByItsBusId) {
  const std::string slow = kSecond + "    Clocks Event Reasons\n        HW Slowdown                       : Active\n";
  const std::string eight = "==============NVSMI LOG==============\nAttached GPUs                             : 8\n";
  const auto title = [](const std::string& text) { return title_of(alone(text), "gpu-throttled"); };
  EXPECT_TRUE(title("$ nvidia-smi -q -d PERFORMANCE -i 3\n" + slow).starts_with("GPU3 is"));
  EXPECT_TRUE(title("$ nvidia-smi --id=5 -q\n" + eight + slow).starts_with("GPU5 is"));
  EXPECT_TRUE(title("$ nvidia-smi -q\n" + slow).starts_with("GPU0 is"));
  EXPECT_TRUE(title("==============NVSMI LOG==============\nAttached GPUs                             : 1\n" + slow)
                  .starts_with("GPU0 is"));
  for (const auto& text : {eight + slow, slow, "$ nvidia-smi -q -i 00000000:40:00.0\n" + eight + slow}) {
    const auto report = alone(text);
    ASSERT_TRUE(title_of(report, "gpu-throttled").starts_with("GPU 0000:40:00.0 is throttled")) << line_of(report);
    EXPECT_TRUE(find(report, "gpu-throttled")->fix.at(0).ends_with("-i 0000:40:00.0"));
    EXPECT_FALSE(title_of(alone(text + kPairMatrix), "gpu-throttled").starts_with("GPU0"));
  }
  const auto pending = alone(eight + kSecond + "    Remapped Rows\n        Pending                           : Yes\n");
  EXPECT_TRUE(title_of(pending, "gpu-memory").starts_with("GPU 0000:40:00.0: ")) << line_of(pending);
  // Among all GPUs of lspci its place is its number.
  const std::string list =
      "1a:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
      "40:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n";
  EXPECT_TRUE(title("$ lspci | grep NVIDIA\n" + list + "```\n```\n" + slow).starts_with("GPU1 is"));
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
