#include <algorithm>

#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"
#include "topology/output.h"

// Lines that start jobs and set their variables, and outputs that stand beside them in reports.
namespace fairway::doctor::testing {
namespace {

constexpr const char* kDevice =
    "user@n7:~$ ibv_devinfo\nhca_id:\tmlx5_0\n\tvendor_id:\t\t\t0x02c9\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE "
    "(4)\n"
    "\t\t\tport_lid:\t\t77\n\t\t\tlink_layer:\t\tInfiniBand\n";

Report beside_device(const std::string& text) {
  return alone(text + kDevice);
}

std::string set_by(std::string_view line) {
  std::string out;
  for (const auto& one : topology::job_variables(line)) out += one.name + "=" + one.value + ";";
  return out;
}

TEST(DoctorJobLines, EveryWayToSetAVariableOfAJob) {
  EXPECT_EQ(set_by("mpirun -np 2 -x NCCL_NET=IB -x LD_LIBRARY_PATH ./a -e 1"), "NCCL_NET=IB;");
  EXPECT_EQ(set_by("export NCCL_DEBUG=INFO UCX_TLS=\"rc,cuda copy\" # NCCL_NET=IB"),
            "NCCL_DEBUG=INFO;UCX_TLS=rc,cuda copy;");
  EXPECT_EQ(set_by("srun --export=ALL,NCCL_IB_DISABLE=1 -N2 ./a"), "NCCL_IB_DISABLE=1;");
  EXPECT_EQ(set_by("mpiexec -genv FI_PROVIDER efa ./a"), "FI_PROVIDER=efa;");
  EXPECT_EQ(set_by("docker run --env=NCCL_NET=Socket -e UCX_TLS=tcp i"), "NCCL_NET=Socket;UCX_TLS=tcp;");
  EXPECT_EQ(set_by("NCCL_IB_HCA==mlx5_0 python x.py"), "NCCL_IB_HCA==mlx5_0;");
  EXPECT_EQ(set_by("see NCCL_NET and UCX_TLS"), "");
}

TEST(DoctorJobLines, AVariableOnALaunchersLineCounts) {
  for (const auto* line :
       {"user@n7:~$ mpirun -np 16 -H a:8,b:8 -x NCCL_IB_HCA=mlx5_9 --mca btl tcp,self ./all_reduce_perf -b 8\n",
        "$ mpirun -np 16 \\\n>   -x NCCL_DEBUG=INFO \\\n>   -x NCCL_IB_HCA=mlx5_9 ./all_reduce_perf\n",
        "mpirun -np 16 -x NCCL_IB_HCA=mlx5_9 ./all_reduce_perf\n", "NCCL_IB_HCA=mlx5_9 torchrun train.py\n"}) {
    const auto report = beside_device(line);
    EXPECT_TRUE(has(report, "setting-names-nothing", Level::warning)) << line << line_of(report);
    EXPECT_TRUE(report.verdict.whole) << line << line_of(report);
  }
}

TEST(DoctorJobLines, SocketsByNameAreAFindingBesideARail) {
  for (const auto* value : {"Socket", "socket", "\"Socket\""})
    EXPECT_TRUE(has(beside_device(std::string("NCCL_NET=") + value + "\n"), "rdma-disabled", Level::warning)) << value;
  for (const auto* value : {"IB", "AWS Libfabric", ""})
    EXPECT_FALSE(has(beside_device(std::string("NCCL_NET=\"") + value + "\"\n"), "rdma-disabled")) << value;
}

TEST(DoctorJobLines, NcclsOwnTransportMayBeOffBesideAPlugin) {
  const std::string off = "$ env\nNCCL_IB_DISABLE=1\n";
  EXPECT_TRUE(has(beside_device(off), "rdma-disabled", Level::warning));
  EXPECT_TRUE(has(beside_device(off + "NCCL_NET=IB\n"), "rdma-disabled", Level::warning));
  EXPECT_FALSE(has(beside_device(off + "NCCL_NET=\"AWS Libfabric\"\n"), "rdma-disabled"));
  EXPECT_FALSE(has(beside_device(off + "NCCL_NET_PLUGIN=gIB\n"), "rdma-disabled"));
  const std::string efa = "$ rdma link\nlink rdmap16s27/1 state ACTIVE physical_state LINK_UP\n";
  EXPECT_FALSE(has(alone(efa + off), "rdma-disabled"));
}

TEST(DoctorJobLines, WordsWithAnEqualsSignAreNoEnvironment) {
  for (const auto* text : {"FOO=bar\nTHING=other\n", "NCCL_IB_DISABLE=1 makes the hang go away\n"}) {
    const auto report = beside_device(std::string("```\n") + text + "```\n");
    EXPECT_TRUE(std::any_of(report.read.begin(), report.read.end(), [](const auto& one) {
      return one.state == topology::ReadState::not_understood;
    })) << text;
    EXPECT_FALSE(has(report, "rdma-disabled")) << text;
  }
  const auto env = beside_device("$ env\nFOO=bar\nTHING=other\n");
  EXPECT_TRUE(env.verdict.whole) << line_of(env);
}

TEST(DoctorJobLines, CountersOfPerfqueryAreThePortsOfTheirLid) {
  const std::string counters =
      "# Port counters: Lid 77 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
      "SymbolErrorCounter:..............12\nLinkDownedCounter:...............3\n"
      "PortXmitData:....................4294967295\n";
  const auto known = beside_device("$ perfquery\n" + counters);
  EXPECT_TRUE(title_of(known, "port-errors").starts_with("mlx5_0: ")) << line_of(known);
  EXPECT_NE(title_of(known, "port-errors").find("symbol_error = 12"), std::string::npos);
  EXPECT_TRUE(title_of(alone(counters), "port-errors").starts_with("LID 77 port 1: ")) << "no output has that LID";
  auto zero = counters;
  zero.replace(zero.find(".12"), 3, "..0");
  zero.replace(zero.find(".3\n"), 2, ".0");
  EXPECT_FALSE(has(beside_device("$ perfquery\n" + zero), "port-errors"));
}

TEST(DoctorJobLines, ListsOfDevicesAndFilesBelowAFolderOfSysAreRead) {
  const std::string rows = "    mlx5_0          \t58a2e10300123456\n    mlx5_1          \t58a2e10300123457\n";
  const auto list = alone("    device          \t   node GUID\n    ------          \t----------------\n" + rows);
  EXPECT_EQ(list.read.at(0).gave, "2 RDMA devices");
  EXPECT_EQ(alone("$ ibstat -l\nmlx5_0\nmlx5_bond_0\n").read.at(0).gave, "2 RDMA devices");
  const auto cat =
      alone("h:/sys/bus/pci/devices$ cat 0000:81:00.0/current_link_width 0000:81:00.0/max_link_width\n8\n16\n");
  EXPECT_EQ(cat.read.at(0).gave, "2 files");
  const auto grep = alone("$ grep . mlx5_0/ports/1/counters/*\nmlx5_0/ports/1/counters/link_downed:3\n");
  EXPECT_TRUE(has(grep, "port-errors")) << line_of(grep);
}

std::string table(const char* bad) {
  std::string out =
      "nvbandwidth Version: v0.8\n\nRunning device_to_device_memcpy_read_ce.\n"
      "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1         2         3\n";
  for (int row = 0; row < 4; ++row) {
    out += " " + std::to_string(row);
    for (int column = 0; column < 4; ++column)
      out += row == column ? "       N/A" : row == 2 && column == 3 ? std::string("    ") + bad : "    394.31";
    out += "\n";
  }
  return out;
}

TEST(DoctorJobLines, APairFarBelowTheOthersOfItsTableIsAFinding) {
  const auto slow = alone(table(" 97.31"));
  EXPECT_TRUE(title_of(slow, "unequal-pairs").starts_with("GPU2 and GPU3")) << line_of(slow);
  EXPECT_FALSE(has(alone(table("394.90")), "unequal-pairs"));
  // Pairs with a bridge, pairs without: several kinds.
  const auto kinds = alone(
      "nvbandwidth Version: v0.8\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
      "           0         1         2         3\n 0       N/A    200.10     20.20     11.30\n"
      " 1    200.10       N/A     20.20     20.30\n 2     20.20     20.20       N/A    200.10\n"
      " 3     20.20     11.30    200.10       N/A\n");
  EXPECT_FALSE(has(kinds, "unequal-pairs")) << line_of(kinds);
}

TEST(DoctorJobLines, WhatHealthyHostsLogIsNoFaultAndNoDoubt) {
  for (const auto* line :
       {"nvidia 0000:1b:00.0: vgaarb: changed VGA decodes: olddecodes=io+mem,decodes=none:owns=none",
        "nvidia 0000:1b:00.0: [drm] Cannot find any crtc or sizes", "NVRM: GPU 0000:1b:00.0: RmInitAdapter succeeded",
        "nvidia-modeset: WARNING: GPU:0: Unable to read EDID for display device DP-0",
        "[drm:nv_drm_load [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00001b00] Failed to allocate NvKmsKapiDevice",
        "mlx5_core 0000:18:00.0: wait_fw_init:199:(pid 7): Waiting for FW initialization, timeout abort in 100s (0x2)",
        "mlx5_core 0000:18:00.0: mlx5_cmd_out_err:816:(pid 9): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
        "parameter(0x3)",
        "mlx5_core 0000:18:00.0 eth0: MTU changed to 4200", "nvidia: module verification failed: tainting kernel"}) {
    const auto report = beside_device(std::string("[    5.200360] ") + line + "\n");
    EXPECT_TRUE(report.verdict.ok && report.verdict.whole && report.findings.empty() && report.unseen.empty())
        << line << line_of(report);
  }
  for (const auto* line : {"NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x25:0x65:1457)",
                           "mlx5_core 0000:18:00.0: command queue hang", "nvidia 0000:1b:00.0: link is dead"}) {
    const auto report = beside_device(std::string("[    5.200360] ") + line + "\n");
    EXPECT_FALSE(report.verdict.ok && report.unseen.empty()) << line << line_of(report);
  }
}

TEST(DoctorJobLines, PromptsOfOtherShellsAndCutHeadings) {
  const auto windows = alone(
      "PS C:\\Users\\k> ssh gpu3 nvidia-smi --query-gpu=index,pci.bus_id,name --format=csv\r\nindex, pci.bus_id, "
      "name\r\n"
      "0, 00000000:19:00.0, NVIDIA H200\r\n");
  EXPECT_EQ(windows.read.at(0).what, "nvidia-smi --query-gpu");
  EXPECT_EQ(windows.read.at(0).gave.substr(0, 5), "1 GPU");
  const auto zsh = alone("➜  ~ ibstat -l\nmlx5_0\n");
  EXPECT_EQ(zsh.read.size(), 1U);
  EXPECT_EQ(zsh.read.at(0).gave, "1 RDMA device");
  const auto list = alone("$ ibv_devinfo -l\n2 HCAs found:\n\tmlx5_0\n\tmlx5_1\n$ ulimit -l\n64\n");
  EXPECT_EQ(list.read.at(0).gave, "2 RDMA devices");
  EXPECT_TRUE(has(list, "memlock", Level::broken)) << line_of(list);
  const auto matrix = alone("\tGPU0\tGPU1\tNIC0\tC\nGPU0\t X \tNV18\tPIX\t\nGPU1\tNV18\t X \tPIX\t\n");
  EXPECT_EQ(matrix.read.at(0).gave, "2 GPUs, 1 NIC");
  EXPECT_FALSE(alone("$ fi_info -p efa\nfi_getinfo: -61 (No data available)\n$ ulimit -l\n64\n").verdict.whole);
}

#ifdef FAIRWAY_HAVE_JSON
TEST(DoctorJobLines, AFailedRunPrintsJsonThatSaysWhy) {
  const auto text = json_of_failure("paste.txt", "the file is \"empty\"");
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("\"verdict\": \"failed\""), std::string::npos);
  EXPECT_NE(text->find("the file is \\\"empty\\\""), std::string::npos);
}
#endif

}  // namespace
}  // namespace fairway::doctor::testing
