#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"

// Error cells and error lines inside an output that is read: what could not be read is told, and never "ok".
namespace fairway::doctor::testing {
namespace {

std::string titles_of(const Report& report) {
  std::string out;
  for (const auto& one : report.findings) out += one.rule + ": " + one.title + "\n";
  return out;
}

Report report_on(const std::string& text) {
  const Folder folder;
  return report_of(folder.write("report.txt", text));
}

std::string table(const std::string& name, const std::string& ecc, const std::string& state) {
  return "$ nvidia-smi\n"
         "| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |\n"
         "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
         "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |\n"
         "| N/A   31C    P0              70W / 700W |       1MiB /  81559MiB |      0%      Default |\n"
         "|   1  " +
         name + "          On  |   00000000:43:00.0 Off |                 " + ecc + " |\n| " + state +
         " |       1MiB /  81559MiB |      0%      Default |\n";
}

TEST(DoctorLost, AGpuWithErrorCellsIsBroken) {
  const std::string fine = "NVIDIA H100 80GB HBM3";
  const std::string cool = "N/A   33C    P0              71W / 700W";
  EXPECT_FALSE(has(report_on(table(fine, "0", cool)), "gpu-lost"));
  EXPECT_TRUE(has(report_on(table("ERR!", "0", cool)), "gpu-lost", Level::broken));
  EXPECT_TRUE(
      has(report_on(table(fine, "ERR!", "ERR!  ERR!  ERR!            ERR! / ERR!")), "gpu-lost", Level::broken));
  EXPECT_TRUE(has(report_on(table(fine, "0", cool) + "+------+\nWARNING: infoROM is corrupted at gpu 0000:43:00.0\n"),
                  "gpu-lost", Level::warning));
  // A fan's or a power's sensor alone.
  EXPECT_TRUE(has(report_on(table(fine, "0", "ERR!  33C    P0              71W / 700W")), "gpu-lost", Level::warning));
  EXPECT_NE(titles_of(report_on(table("ERR!", "0", cool))).find("GPU1"), std::string::npos);
}

TEST(DoctorLost, ACellOfACsvThatCouldNotBeReadIsALostGpu) {
  const std::string heading = "index, pci.bus_id, ecc.errors.uncorrected.volatile.total\n0, 00000000:1B:00.0, 0\n";
  EXPECT_FALSE(has(report_on(heading + "1, 00000000:43:00.0, [N/A]\n"), "gpu-lost"));
  EXPECT_TRUE(has(report_on(heading + "1, 00000000:43:00.0, [GPU is lost]\n"), "gpu-lost", Level::broken));
  const auto report = report_on(heading +
                                "Unable to determine the device handle for gpu 0000:43:00.0: GPU is lost.  Reboot the "
                                "system to recover this GPU\n");
  EXPECT_TRUE(has(report, "gpu-lost", Level::broken));
  EXPECT_EQ(exit_code(report.verdict), 2);
  EXPECT_EQ(report.read.size(), 2U);
  // Without bus ids.
  EXPECT_TRUE(has(report_on("index, name, pcie.link.gen.max\n0, NVIDIA H100, 5\n"
                            "1, [Unknown Error], [Unknown Error]\n"),
                  "gpu-lost", Level::broken));
}

TEST(DoctorLost, ASentenceInPlaceOfAGpuIsALostGpu) {
  const std::string log =
      "==============NVSMI LOG==============\n\nAttached GPUs                             : 2\n"
      "GPU 00000000:1B:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n";
  EXPECT_FALSE(has(report_on(log), "gpu-lost"));
  EXPECT_TRUE(has(report_on(log + "GPU 00000000:43:00.0\n    GPU is lost\n"), "gpu-lost", Level::broken));
  const auto alone =
      report_on("$ nvidia-smi\nUnable to determine the device handle for GPU0000:43:00.0: Unknown Error\n");
  EXPECT_TRUE(has(alone, "gpu-lost", Level::broken));
  ASSERT_EQ(alone.read.size(), 1U);
  EXPECT_EQ(alone.read.front().what, "nvidia-smi");
  const auto inside = report_on(log + "Unable to determine the device handle for GPU 0000:43:00.0: Unknown Error\n");
  EXPECT_TRUE(has(inside, "gpu-lost", Level::broken));
  EXPECT_NE(titles_of(inside).find("0000:43:00.0"), std::string::npos);
}

TEST(DoctorLost, AFunctionThatReadsAsOnesIsLost) {
  const std::string gpu = "$ lspci\n2a:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev ";
  EXPECT_FALSE(has(report_on(gpu + "a1)\n"), "gpu-lost"));
  EXPECT_TRUE(has(report_on(gpu + "ff) (prog-if ff)\n\t!!! Unknown header type 7f\n"), "gpu-lost", Level::broken));
  EXPECT_TRUE(has(report_on("2b:00.0 Infiniband controller: Mellanox Technologies MT2910 (rev ff)\n"), "gpu-lost",
                  Level::broken));
  EXPECT_FALSE(has(report_on(gpu + "a1)\n00:01.0 PCI bridge: Intel Corporation Device 352a (rev ff)\n"), "gpu-lost"));
}

TEST(DoctorLost, AnErrorLineBehindAGoodOutputIsAFailedCommand) {
  const std::string good =
      "root@n:~# ibstat\nCA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n"
      "\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n";
  const std::string bad = "ibpanic: [3211] main: stat of IB device 'mlx5_1' failed: No such file or directory\n";
  EXPECT_EQ(exit_code(report_on(good).verdict), 0);
  for (const auto& text : {good + bad, "root@n:~# ibstat\n" + bad + good.substr(good.find("CA '"))}) {
    const auto report = report_on(text);
    EXPECT_EQ(exit_code(report.verdict), 4) << text;
    ASSERT_EQ(report.read.size(), 2U) << text;
    std::size_t failed = 0;
    for (const auto& one : report.read) {
      if (one.state != topology::ReadState::failed) continue;
      ++failed;
      EXPECT_EQ(one.what, "ibstat");
      EXPECT_EQ(one.gave.find("ibpanic: "), 0U) << one.gave;
    }
    EXPECT_EQ(failed, 1U) << text;
  }
}

TEST(DoctorLost, ACommandThatFailedIsUnderstood) {
  const auto report = report_on(
      "$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n");
  EXPECT_EQ(exit_code(report.verdict), 4);
  ASSERT_EQ(report.read.size(), 1U);
  EXPECT_EQ(report.read.front().state, topology::ReadState::failed);
  const auto client =
      report_on("$ iperf3 -c 10.0.0.2\niperf3: error - unable to connect to server: Connection refused\n");
  EXPECT_EQ(exit_code(client.verdict), 4);
}

TEST(DoctorLost, WhatTheDriverLogsWithoutAnXid) {
  const std::string matrix = std::string("$ nvidia-smi topo -m\n") + kPairMatrix + "\n$ dmesg | grep NVRM\n";
  for (const auto* log :
       {"[ 100.2] NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.\n",
        "NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.\n",
        "[ 1.2] NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0xffff:2477)\n",
        "[ 1.2] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\n"
        "[ 1.3] NVRM: GPU 0000:5d:00.0: rm_init_adapter failed, device minor number 0\n",
        "[ 1.2] NVRM: The NVIDIA GPU 0000:5d:00.0\n[ 1.2] NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "[ 1.2] NVRM: fallen off the bus and is not responding to commands.\n",
        "[ 1.2] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
        "[ 1.2] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:5d:00.0)\n"}) {
    const auto report = report_on(matrix + log);
    EXPECT_TRUE(has(report, "gpu-lost", Level::broken)) << log;
    EXPECT_EQ(titles_of(report).find("gpu-lost: 0000:5d:00.0"), 0U) << log << titles_of(report);
    EXPECT_EQ(report.findings.size(), 1U) << log << titles_of(report);
  }
  // An XID of the same GPU is the same fault; a line that names no GPU counts too; what a driver says at boot does not.
  const auto both = report_on(matrix +
                              "[ 1.1] NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has fallen off the bus.\n"
                              "[ 1.2] NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.\n");
  EXPECT_EQ(both.findings.size(), 1U) << titles_of(both);
  EXPECT_TRUE(has(report_on("[ 1.2] NVRM: RmInitAdapter failed! (0x26:0xffff:1106)\n"), "gpu-lost", Level::broken));
  EXPECT_EQ(word(report_on(matrix + "[ 1.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07\n").verdict),
            "ok");
}

TEST(DoctorLost, WhatOtherDriversLogIsJudgedOrNamed) {
  const std::string matrix = std::string("$ nvidia-smi topo -m\n") + kPairMatrix + "\n$ dmesg\n";
  for (const auto* log :
       {"[ 1.1] amdgpu 0000:05:00.0: amdgpu: RAS: uncorrectable hardware errors detected in umc block\n",
        "[ 1.1] amdgpu 0000:05:00.0: amdgpu: 3 new uncorrectable hardware errors detected in umc block\n",
        "[ 1.1] amdgpu 0000:05:00.0: amdgpu: GPU reset begin!\n",
        "[ 1.1] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1\n",
        "[ 1.1] mlx5_core 0000:05:00.0: temp_warn:186:(pid 0): High temperature on sensors with bit set 1\n",
        "[ 1.1] mlx5_core 0000:05:00.0: wait_func:1158:(pid 7): ENABLE_HCA(0x104) timeout. Will cause a leak\n",
        "[ 1.1] bnxt_en 0000:05:00.0 eth0: TX timeout detected, starting reset task!\n",
        "[ 1.1] NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 5 timed out\n",
        "[ 1.1] {1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4\n"
        "[ 1.1] {1}[Hardware Error]: event severity: fatal\n"
        "[ 1.1] {1}[Hardware Error]:   device_id: 0000:05:00.0\n"}) {
    EXPECT_TRUE(has(report_on(matrix + log), "log-complaints", Level::warning)) << log;
  }
  EXPECT_EQ(exit_code(report_on(matrix + "[ 1.1] {1}[Hardware Error]: event severity: corrected\n").verdict), 0);
  // Nothing judges it: it is named.
  const auto named = report_on(matrix +
                               "[ 1.1] mlx5_core 0000:05:00.0: firmware version: 28.39.1002\n"
                               "[ 1.2] amdgpu 0000:06:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24)\n"
                               "[ 1.3] ice 0000:07:00.0: The DDP package could not be loaded: error -5\n");
  EXPECT_EQ(exit_code(named.verdict), 4);
  ASSERT_EQ(named.unseen.size(), 1U);
  EXPECT_NE(named.unseen.front().find("2 lines of drivers that nothing here judges: 'amdgpu 0000:06"),
            std::string::npos)
      << named.unseen.front();
  EXPECT_EQ(
      exit_code(report_on(matrix + "[ 1.1] mlx5_core 0000:05:00.0: firmware version: 28.39.1002\n"
                                   "[ 1.2] nvidia: module verification failed: signature and/or required key missing\n"
                                   "[ 1.3] amdgpu 0000:05:00.0: amdgpu: 0 uncorrectable hardware errors in total\n"
                                   "[ 1.4] ext4: error, which is no driver's of a GPU\n")
                    .verdict),
      0);
}

TEST(DoctorLost, ALimitedLinkOfAnotherDeviceIsANote) {
  const std::string limited =
      " 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:00:01.1 (capable of 126.024 "
      "Gb/s "
      "with 16.0 GT/s PCIe x8 link)\n";
  const std::string log = "$ dmesg\n[ 1.2] pci 0000:01:00.0:" + limited;
  const auto only_a_note = [](const Report& report, const char* says) {
    EXPECT_TRUE(has(report, "pcie-limited")) << titles_of(report);
    EXPECT_FALSE(has(report, "pcie-limited", Level::warning)) << titles_of(report);
    EXPECT_NE(find(report, "pcie-limited")->advice.find(says), std::string::npos)
        << find(report, "pcie-limited")->advice;
  };
  const std::string nvme = "\n$ lspci\n01:00.0 Non-Volatile memory controller: Samsung NVMe\n";
  only_a_note(report_on(log + nvme), "It is no GPU");
  only_a_note(
      report_on("[ 1.1] pci 0000:01:00.0: [144d:a80a] type 00 class 0x010802\n[ 1.2] pci 0000:01:00.0:" + limited),
      "It is no GPU");
  only_a_note(report_on(log), "lspci does");
  EXPECT_TRUE(has(report_on("[ 1.1] pci 0000:01:00.0: [15b3:1021] type 00 class 0x020700 PCIe Endpoint\n"
                            "[ 1.2] pci 0000:01:00.0:" +
                            limited),
                  "pcie-limited", Level::warning));
  EXPECT_TRUE(has(report_on("[ 1.2] mlx5_core 0000:01:00.0:" + limited), "pcie-limited", Level::warning));
}

}  // namespace
}  // namespace fairway::doctor::testing
