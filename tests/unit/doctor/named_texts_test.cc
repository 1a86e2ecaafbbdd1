#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"

// Texts of tools beside the usual ones: read, or named.
namespace fairway::doctor::testing {
namespace {

std::string unseen_of(const Report& report) {
  std::string out;
  for (const auto& one : report.unseen) out += one + "; ";
  return out;
}

TEST(DoctorNamedTexts, AcceleratorsThatNpuSmiListsAreNamed) {
  const auto report = alone(
      "+------------------------------------------------------------------------+\n"
      "| npu-smi 23.0.3                   Version: 23.0.3                       |\n"
      "| NPU   Name                | Health        | Power(W)    Temp(C)        |\n"
      "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)|\n"
      "| 0     910B3               | OK            | 94.5        38             |\n"
      "| 0                         | 0000:C1:00.0  | 0           0    / 0       |\n"
      "| 1     910B3               | OK            | 93.1        39             |\n"
      "| 0                         | 0000:01:00.0  | 0           0    / 0       |\n");
  EXPECT_NE(unseen_of(report).find("2 accelerators that Fairway does not know: Ascend 910B3"), std::string::npos)
      << unseen_of(report);
  EXPECT_EQ(text_named(report, "paste.txt").what, "npu-smi");
}

TEST(DoctorNamedTexts, AcceleratorsOfAQueryOfHlSmiAreSeen) {
  const Folder folder;
  const auto found = read_case(folder.write("paste.txt",
                                            "$ hl-smi -Q index,name,bus_id,temperature.aip -f csv\n"
                                            "index, name, bus_id, temperature.aip [C]\n"
                                            "0, HL-225, 0000:19:00.0, 31\n1, HL-225, 0000:b3:00.0, 29\n"));
  ASSERT_TRUE(found) << found.status().message();
  ASSERT_EQ(found->machine.gpus.size(), 2U);
  EXPECT_EQ(found->machine.gpus[1].model.value_or(""), "HL-225");
}

TEST(DoctorNamedTexts, BlocksOfTheFabricAloneAreTheGpusInTheirOrder) {
  const auto report = alone(
      "    Fabric\n        State                             : Completed\n"
      "        Status                            : Success\n--\n"
      "    Fabric\n        State                             : In Progress\n"
      "        Status                            : N/A\n");
  EXPECT_TRUE(has(report, "fabric-not-ready", Level::broken));
  EXPECT_NE(title_of(report, "fabric-not-ready").find("GPU1: not in"), std::string::npos)
      << title_of(report, "fabric-not-ready");
}

TEST(DoctorNamedTexts, CudaThatWaitsForTheFabricManagerIsBroken) {
  const std::string waits =
      "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized\n";
  const std::string status =
      "$ systemctl status nvidia-fabricmanager\n"
      "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
      "     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; disabled; vendor preset: enabled)\n";
  EXPECT_TRUE(has(alone(waits), "fabric-not-ready", Level::broken));
  const auto both = alone(waits + status + "     Active: inactive (dead)\n");
  EXPECT_TRUE(has(both, "fabric-not-ready", Level::broken));
  EXPECT_NE(title_of(both, "fabric-not-ready").find("The fabric manager does not run: inactive (dead)"),
            std::string::npos);
  EXPECT_TRUE(
      has(alone(status + "     Active: failed (Result: exit-code) since Tue\n"), "fabric-not-ready", Level::warning));
  // Machines without NVSwitches have no use for it.
  EXPECT_FALSE(has(alone(status + "     Active: inactive (dead)\n"), "fabric-not-ready", Level::warning));
  EXPECT_FALSE(has(alone(status + "     Active: active (running) since Tue\n"), "fabric-not-ready"));
}

TEST(DoctorNamedTexts, VariablesOfAPodAreTheJobs) {
  const Folder folder;
  const auto found = read_case(folder.write("paste.txt",
                                            "    image: foo/bar:1.2\n    env:\n    - name: NCCL_IB_DISABLE\n"
                                            "      value: \"1\"\n    - name: NCCL_DEBUG\n      value: INFO\n"
                                            "    - name: OTHER\n      value: 7\n"));
  ASSERT_TRUE(found) << found.status().message();
  EXPECT_EQ(found->facts.text("env.NCCL_IB_DISABLE"), "1");
  EXPECT_EQ(found->facts.text("env.NCCL_DEBUG"), "INFO");
  EXPECT_EQ(found->facts.find("env.OTHER"), nullptr);
}

TEST(DoctorNamedTexts, DfOfAnotherLanguageHasTheSameColumns) {
  const std::string german =
      "Dateisystem    Größe Benutzt Verf. Verw% Eingehängt auf\n"
      "udev            504G       0  504G    0% /dev\ntmpfs            64M       0   64M    0% /dev/shm\n";
  EXPECT_TRUE(has(beside_matrix("df.txt", german), "small-shm", Level::warning));
  const auto rows = german.substr(german.find('\n') + 1);
  EXPECT_TRUE(has(beside_matrix("df.txt", rows), "small-shm", Level::warning));
}

TEST(DoctorNamedTexts, UcxsOwnLogWarnsOfFailures) {
  const auto report = alone(
      "[1700000000.123456] [node1:2211:0]   ucp_context.c:1071 UCX  WARN  network device 'mlx5_9:1' is not available\n"
      "[1700000000.223456] [node1:2211:0]   ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded on mlx5_0\n"
      "[1700000000.323456] [node1:2211:0]   parser.c:2036 UCX  INFO  UCX_* env variables: UCX_TLS=tcp\n");
  EXPECT_TRUE(has(report, "job-warnings", Level::warning));
  EXPECT_EQ(text_named(report, "paste.txt").what, "UCX's log");
}

TEST(DoctorNamedTexts, ABlockOfCommandsAloneIsNoOutputThatPrintedNothing) {
  const std::string ibstat =
      "```\n$ ibstat\nCA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n```\n";
  for (const auto& one : alone("Run:\n```\n$ nvidia-smi topo -m\n$ ibstat\n```\n" + ibstat).read)
    EXPECT_EQ(one.state, topology::ReadState::read) << one.where << " " << one.what << " " << one.gave;
  // Beside an output a command without one printed nothing.
  const auto report = alone("```\n$ nvidia-smi topo -m\n" + ibstat.substr(4));
  EXPECT_EQ(text_named(report, "paste.txt").state, topology::ReadState::empty);
}

TEST(DoctorNamedTexts, ARailThatIsDownInRdmaLinkAloneIsMissed) {
  const std::string up = "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0\n";
  EXPECT_TRUE(has(alone(up + "link mlx5_1/1 state DOWN physical_state POLLING netdev ens2f0np0\n"), "port-down",
                  Level::warning));
  EXPECT_FALSE(has(alone(up + "link mlx5_1/1 state DOWN physical_state DISABLED netdev ens1f1np1\n"), "port-down",
                   Level::warning));
}

}  // namespace
}  // namespace fairway::doctor::testing
