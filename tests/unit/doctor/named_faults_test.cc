#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"

// Faults that stand in a field of an output, each beside the same output without them.
namespace fairway::doctor::testing {
namespace {

Report report_on(const std::string& text) {
  const Folder folder;
  return report_of(folder.write("report.txt", text));
}

const Finding* finding_of(const Report& report, std::string_view rule) {
  for (const auto& one : report.findings) {
    if (one.rule == rule) return &one;
  }
  return nullptr;
}

std::string smi_log(const std::string& fields) {
  return "==============NVSMI LOG==============\n\nDriver Version                            : 570.90.07\n\n"
         "Attached GPUs                             : 1\nGPU 00000000:1B:00.0\n"
         "    Product Name                          : NVIDIA A100-SXM4-80GB\n" +
         fields;
}

TEST(DoctorNamedFaults, SmiQueryFieldsOfAGpu) {
  const auto recovery = [](const char* reset, const char* action) {
    return report_on(smi_log(std::string("    GPU Reset Status\n        Reset Required                    : ") + reset +
                             "\n    GPU Recovery Action                   : " + action + "\n"));
  };
  EXPECT_FALSE(has(recovery("No", "None"), "gpu-lost"));
  EXPECT_TRUE(has(recovery("Yes", "None"), "gpu-lost", Level::broken));
  EXPECT_TRUE(has(recovery("No", "Reboot"), "gpu-lost", Level::broken));
  const auto pages = [](const char* waits) {
    return report_on(
        smi_log(std::string("    Retired Pages\n        Pending Page Blacklist            : ") + waits + "\n"));
  };
  EXPECT_FALSE(has(pages("No"), "gpu-memory"));
  EXPECT_TRUE(has(pages("Yes"), "gpu-memory", Level::warning));
  // GPUs that remap rows have no retired pages.
  EXPECT_TRUE(has(report_on(smi_log("    Retired Pages\n        Pending Page Blacklist            : N/A\n"
                                    "    Remapped Rows\n        Pending                           : Yes\n")),
                  "gpu-memory", Level::warning));
  EXPECT_TRUE(has(report_on(smi_log("        SRAM Threshold Exceeded           : Yes\n")), "gpu-memory"));
  const auto heat = [](const char* now) {
    return report_on(smi_log(std::string("    Temperature\n        GPU Current Temp                  : ") + now +
                             " C\n        GPU Slowdown Temp                 : 92 C\n"));
  };
  EXPECT_FALSE(has(heat("61"), "gpu-throttled"));
  EXPECT_TRUE(has(heat("95"), "gpu-throttled", Level::warning));
  const auto margin = [](const char* now) {
    return report_on(smi_log(std::string("    Temperature\n        GPU T.Limit Temp                  : ") + now +
                             " C\n        GPU Slowdown T.Limit Temp         : -2 C\n"));
  };
  EXPECT_FALSE(has(margin("40"), "gpu-throttled"));
  EXPECT_TRUE(has(margin("-3"), "gpu-throttled", Level::warning));
  const auto replays = [](const char* count) {
    return report_on(smi_log(std::string("    PCI\n        Replays Since Reset               : ") + count + "\n"));
  };
  EXPECT_FALSE(has(replays("12"), "pcie-replays"));
  EXPECT_TRUE(has(replays("918212"), "pcie-replays", Level::warning));
  const auto width = [](const char* now) {
    return report_on(
        smi_log(std::string("    PCI\n        GPU Link Info\n            Link Width\n                Max     "
                            "                  : 16x\n                Current                   : ") +
                now + "\n"));
  };
  EXPECT_FALSE(has(width("16x"), "pcie-width"));
  EXPECT_TRUE(has(width("8x"), "pcie-width", Level::warning));
}

TEST(DoctorNamedFaults, AllErrorsOfAGpusMemoryAreEvidence) {
  const auto report = report_on(
      smi_log("    ECC Errors\n        Volatile\n            SRAM Uncorrectable SEC-DED    : 3\n"
              "        SRAM Threshold Exceeded           : Yes\n    Remapped Rows\n"
              "        Pending                           : Yes\n        Remapping Failure Occurred        : Yes\n"));
  const auto* memory = finding_of(report, "gpu-memory");
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->level, Level::broken);
  EXPECT_EQ(memory->evidence.size(), 4U);
  EXPECT_TRUE(has(report_on(smi_log("        SRAM Threshold Exceeded           : Yes\n    Remapped Rows\n"
                                    "        Remapping Failure Occurred        : No\n")),
                  "gpu-memory", Level::warning));
}

TEST(DoctorNamedFaults, ColumnsOfASmiQuery) {
  const auto row = [](const char* cells) {
    return report_on(std::string("index, pci.bus_id, remapped_rows.pending, remapped_rows.failure, "
                                 "clocks_event_reasons.hw_thermal_slowdown, clocks_throttle_reasons.hw_slowdown\n"
                                 "0, 00000000:1B:00.0, ") +
                     cells + "\n");
  };
  const auto fine = row("No, 0, Not Active, Not Active");
  EXPECT_EQ(exit_code(fine.verdict), 0);
  EXPECT_FALSE(has(fine, "gpu-memory") || has(fine, "gpu-throttled"));
  EXPECT_TRUE(has(row("Yes, 0, Not Active, Not Active"), "gpu-memory", Level::warning));
  EXPECT_TRUE(has(row("No, 1, Not Active, Not Active"), "gpu-memory", Level::broken));
  EXPECT_TRUE(has(row("No, 0, Active, Not Active"), "gpu-throttled", Level::warning));
  EXPECT_TRUE(has(row("No, 0, Not Active, Active"), "gpu-throttled", Level::warning));
  const auto width = [](const char* now) {
    return report_on(std::string("index, name, pcie.link.width.current, pcie.link.width.max\n0, NVIDIA H100, ") + now +
                     ", 16\n");
  };
  EXPECT_FALSE(has(width("16"), "pcie-width"));
  EXPECT_TRUE(has(width("8"), "pcie-width", Level::warning));
}

TEST(DoctorNamedFaults, MlxlinksValuesOutsideTheirRange) {
  const auto link = [](const char* heat, const char* power, const char* downs, const char* state = "Active") {
    return report_on(std::string("# mlxlink -d mlx5_0 -m -c\n\nOperational Info\n----------------\n"
                                 "State                              : ") +
                     state +
                     "\n\nModule Info\n-----------\n"
                     "Temperature [C]                    : " +
                     heat + " [-5..75]\nRx Power Current [dBm]             : " + power +
                     " [-7.9..6]\n\nLink Down Counter                  : " + downs + "\n");
  };
  EXPECT_FALSE(has(link("61", "0.4,0.3", "1"), "link-diagnosis"));
  EXPECT_TRUE(has(link("78", "0.4,0.3", "1"), "link-diagnosis", Level::warning));
  EXPECT_TRUE(has(link("61", "0.4,-11.2", "1"), "link-diagnosis", Level::warning));
  EXPECT_TRUE(has(link("61", "0.4,0.3", "47"), "link-diagnosis", Level::warning));
  // No light in a port without a link.
  EXPECT_FALSE(has(link("61", "-40,-40", "1", "Polling"), "link-diagnosis", Level::warning));
}

TEST(DoctorNamedFaults, NvlinksOfLikeGpus) {
  const auto gpu = [](int number, const char* links) {
    return "GPU " + std::to_string(number) + ": NVIDIA H100 (UUID: GPU-aaaaaaaa-1111-2222-3333-44444444444" +
           std::to_string(number) + ")\n" + links;
  };
  const char* two = "\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n";
  const auto both = [&](const char* first, const char* second) {
    return report_on("$ nvidia-smi nvlink -s\n" + gpu(0, first) + gpu(1, second));
  };
  EXPECT_FALSE(has(both(two, two), "nvlink-down"));
  const char* none = "NVML: Unable to retrieve NVLink information as all links are inActive\n";
  const auto lost = both(none, two);
  EXPECT_TRUE(has(lost, "nvlink-down", Level::broken));
  EXPECT_EQ(lost.read.size(), 1U);
  // Cards without bridges.
  EXPECT_FALSE(has(both(none, none), "nvlink-down", Level::warning));
  EXPECT_TRUE(has(both("\t Link 0: 13.281 GB/s\n\t Link 1: 26.562 GB/s\n", two), "nvlink-down", Level::warning));
  EXPECT_TRUE(has(both("\t Link 0: 26.562 GB/s\n", two), "nvlink-down", Level::warning));
  // What may have been cut off.
  const auto cut = both(two, "\t Link 0: 26.562 GB/s\n\t Link 1: 26.5");
  EXPECT_TRUE(has(cut, "nvlink-down"));
  EXPECT_FALSE(has(cut, "nvlink-down", Level::warning));
}

TEST(DoctorNamedFaults, ProgramsThatMeasureAndEndWithAnError) {
  const auto early = report_on(
      "$ ./nvbandwidth\nnvbandwidth Version: v0.8\n\n"
      "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized (802)\n");
  EXPECT_TRUE(has(early, "run-failed", Level::warning));
  ASSERT_NE(finding_of(early, "run-failed"), nullptr);
  EXPECT_NE(finding_of(early, "run-failed")->fix.front().find("fabricmanager"), std::string::npos);
  const std::string row =
      "$ ucx_perftest -t ucp_put_bw n2\n"
      "[thread 0]             10000      1.234    40.123    40.123    24923.12   24923.12       24923       24923\n"
      "Final:                 10000      1.234    40.123    40.123    24923.12   24923.12       24923       24923\n";
  EXPECT_FALSE(has(report_on(row), "run-failed"));
  EXPECT_TRUE(
      has(report_on(row + "[1741684800.123456] [n1:1234 :0]  ib_md.c:354  UCX  ERROR ibv_reg_mr(address=0x7f00) "
                          "failed: Cannot allocate memory\n"),
          "run-failed", Level::warning));
}

TEST(DoctorNamedFaults, WhatAJobsLogAndSettingsSay) {
  const std::string info = "node01:12345:12361 [0] NCCL INFO ";
  EXPECT_TRUE(has(report_on(info + "NET/IB : No device found.\n" + info + "Using network Socket\n"), "job-on-sockets"));
  EXPECT_FALSE(
      has(report_on(info + "NET/IB : Using [0]mlx5_0:1/IB\n" + info + "Using network IB\n"), "job-on-sockets"));
  const auto warned = [](const char* words) {
    return report_on(std::string("n1:12:99 [0] misc/x.cc:160 NCCL WARN ") + words + "\n");
  };
  EXPECT_TRUE(
      has(warned("Call to ibv_reg_mr failed with error Cannot allocate memory"), "job-warnings", Level::warning));
  EXPECT_TRUE(has(warned("Error: failed to extend /dev/shm/nccl-x to 9 bytes, error: No space left on device (28)"),
                  "job-warnings", Level::warning));
  EXPECT_TRUE(has(warned("NET/OFI Request completed with error. RC: 4113. Error: unresponsive receiver"),
                  "job-warnings", Level::warning));
  EXPECT_FALSE(has(warned("Linux kernel NUMA balancing is on"), "job-warnings", Level::warning));
  const auto shm = [](const char* use) {
    return report_on(std::string("$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\nshm             126G  ") +
                     use +
                     " /dev/shm\n$ nvidia-smi --query-gpu=index,pci.bus_id --format=csv\nindex, pci.bus_id\n"
                     "0, 00000000:1B:00.0\n");
  };
  EXPECT_FALSE(has(shm("1G 125G 1%"), "small-shm"));
  EXPECT_TRUE(has(shm("126G 0 100%"), "small-shm", Level::warning));
  const auto job = [](const char* link) {
    return report_on(std::string("$ env | grep NCCL\nNCCL_P2P_DISABLE=1\n$ nvidia-smi topo -m\n"
                                 "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t") +
                     link + "\t0-15\t0\nGPU1\t" + link + "\t X \t0-15\t0\n");
  };
  EXPECT_TRUE(has(job("NV4"), "p2p-disabled", Level::warning));
  EXPECT_TRUE(has(job("PIX"), "p2p-disabled"));
  EXPECT_FALSE(has(job("PIX"), "p2p-disabled", Level::warning));
}

TEST(DoctorNamedFaults, RefusedPeerAccessIsSaidWhereLinksAreUnknown) {
  const auto peers = [](const char* answer) {
    return report_on(std::string("$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\n GPU0\tX\t") + answer + "\n GPU1\t" +
                     answer + "\tX\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n");
  };
  EXPECT_FALSE(has(peers("OK"), "peer-refused"));
  EXPECT_TRUE(has(peers("CNS"), "peer-refused"));
  EXPECT_FALSE(has(peers("CNS"), "peer-refused", Level::warning));
}

TEST(DoctorNamedFaults, ANicWithoutGpuDirectIsSaidByNcclsLog) {
  const std::string info = "n1:100:200 [0] NCCL INFO ";
  const auto log = [&info](const char* how) {
    return info + "NET/IB : GPU Direct RDMA " + how + " for HCA 0 'mlx5_0'\n" + info + "NET/IB : GPU Direct RDMA " +
           how + " for HCA 0 'mlx5_0'\n" + info + "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0" +
           (std::string(how) == "Enabled" ? "/GDRDMA\n" : "\n");
  };
  const auto beside = [](const std::string& text) { return beside_matrix("nccl.log", text); };
  EXPECT_TRUE(has(beside(log("Disabled")), "gdr-refused", Level::warning));
  EXPECT_NE(title_of(beside(log("Disabled")), "gdr-refused").find("disabled for 1 NIC |"), std::string::npos)
      << title_of(beside(log("Disabled")), "gdr-refused");
  EXPECT_FALSE(has(beside(log("Enabled")), "gdr-refused"));
  // GB10 has none by design.
  const std::string gb10 =
      "$ nvidia-smi --query-gpu=index,name,pci.bus_id --format=csv\nindex, name, pci.bus_id\n"
      "0, NVIDIA GB10, 0000000F:01:00.0\n";
  EXPECT_FALSE(has(report_on(gb10 + log("Disabled")), "gdr-refused"));
}

TEST(DoctorNamedFaults, TheLimitOfMemoryCountsBesideNicsThatLspciNames) {
  const std::string lspci =
      "$ lspci\n1a:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
      "1b:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n";
  EXPECT_TRUE(has(report_on(lspci + "$ ulimit -l\n64\n"), "memlock", Level::broken));
  EXPECT_FALSE(has(report_on(lspci + "$ ulimit -l\nunlimited\n"), "memlock"));
  EXPECT_TRUE(has(report_on("$ cat /proc/7/limits\nMax locked memory         65536                65536                "
                            "bytes     \n" +
                            lspci),
                  "memlock", Level::broken));
  EXPECT_FALSE(has(report_on(lspci.substr(0, lspci.find("1b:")) + "$ ulimit -l\n64\n"), "memlock"));
}

TEST(DoctorNamedFaults, ErrorsOfProgramsThatPrintedNoTable) {
  const std::string register_failed = "Couldn't allocate MR\nfailed to create mr\n";
  const auto write = report_on("$ ib_write_bw -d mlx5_0 10.0.0.2\n" + register_failed);
  ASSERT_TRUE(has(write, "run-failed", Level::warning));
  EXPECT_EQ(title_of(write, "run-failed").find("ib_write_bw failed: Couldn't allocate MR"), 0U)
      << title_of(write, "run-failed");
  EXPECT_TRUE(has(report_on("$ ib_read_bw -d mlx5_0 10.0.0.2\n" + register_failed), "run-failed"));
  EXPECT_TRUE(has(report_on(register_failed), "run-failed", Level::warning));
  EXPECT_TRUE(
      has(report_on("$ ib_write_bw --use_cuda=0 n2\ninitializing CUDA\nPicking device No. 0\n" + register_failed),
          "run-failed", Level::warning));
  EXPECT_TRUE(has(report_on("$ ib_send_bw n2\n Unable to init the socket connection\n"), "run-failed"));
  const std::string osu = "# OSU MPI-CUDA Latency Test v7.3\n# Size          Latency (us)\n0                1.20\n";
  EXPECT_FALSE(has(report_on(osu), "run-failed"));
  const auto mpi = report_on(osu +
                             "[gpu01:1234] *** An error occurred in MPI_Send\n"
                             "[gpu01:1234] *** MPI_ERR_INTERN: internal error\n");
  ASSERT_TRUE(has(mpi, "run-failed", Level::warning));
  EXPECT_NE(title_of(mpi, "run-failed").find("An error occurred in MPI_Send: MPI_ERR_INTERN"), std::string::npos)
      << title_of(mpi, "run-failed");
}

TEST(DoctorNamedFaults, OtherDomainsOfOneSocketAreNoOtherSocket) {
  const auto matrix = [](const char* numa, const char* gpu_numa) {
    const std::string end = std::string("\t0-71\t") + numa + "\t\t" + gpu_numa + "\n";
    return "$ nvidia-smi topo -m\n\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV18\tSYS" +
           end + "GPU1\tNV18\t X \tSYS" + end + "NIC0\tSYS\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n";
  };
  EXPECT_FALSE(has(report_on(matrix("0,2-17", "N/A")), "no-near-nic"));
  EXPECT_FALSE(has(report_on(matrix("0,2-17", "2")), "no-near-nic"));
  EXPECT_TRUE(has(report_on(matrix("0", "N/A")), "no-near-nic"));
}

}  // namespace
}  // namespace fairway::doctor::testing
