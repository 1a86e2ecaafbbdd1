#include <filesystem>

#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"
#include "topology/text.h"

// What a report rests on, and a verdict that is "ok" only over what was read.
namespace fairway::doctor::testing {
namespace {

constexpr const char* kMatrix =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tSYS\tPIX\tSYS\t0-3\t0\nGPU1\tSYS\t X \tSYS\tPIX\t4-7\t1\n"
    "NIC0\tPIX\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";

TEST(DoctorReading, OkIsSaidOnlyWhereEverythingGivenWasRead) {
  const Folder folder;
  folder.write("topo.txt", kMatrix);
  auto report = report_of(folder.path());
  EXPECT_EQ(word(report.verdict), "ok");
  EXPECT_EQ(exit_code(report.verdict), 0);
  folder.write("strange.txt", "Some tool 3.1\nvalue 17\n");
  folder.write("smi.txt", "No devices were found\n");
  folder.write("none.txt", "");
  report = report_of(folder.path());
  EXPECT_EQ(word(report.verdict), "unclear");
  EXPECT_EQ(exit_code(report.verdict), 4);
  EXPECT_EQ(text_named(report, "topo.txt").gave, "2 GPUs, 2 NICs");
  EXPECT_EQ(text_named(report, "strange.txt").state, topology::ReadState::not_understood);
  EXPECT_EQ(text_named(report, "smi.txt").state, topology::ReadState::failed);
  EXPECT_EQ(text_named(report, "none.txt").state, topology::ReadState::empty);
  const auto text = text_of(report, {}, false);
  EXPECT_EQ(text.find("unclear"), 0U);
  for (const auto* words : {"strange.txt", "begins \"Some tool 3.1\"", "No devices were found", "none.txt",
                            "1 text not", "nothing was checked of: "})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
#ifdef FAIRWAY_HAVE_JSON
  const auto json = json_of({}, report);
  ASSERT_TRUE(json);
  for (const auto* words : {"\"verdict\": \"unclear\"", "\"state\": \"not understood\"", "\"exit_code\": 4"})
    EXPECT_NE(json->find(words), std::string::npos) << words;
#endif
  EXPECT_NE(html_of({}, report).find("strange.txt"), std::string::npos);
  EXPECT_NE(prom_of(report).find("fairway_doctor_texts_not_read 3\n"), std::string::npos);
}

TEST(DoctorReading, AMachineWithoutDevicesIsNeverOk) {
  const Folder folder;
  folder.write("cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1\n");
  const auto report = report_of(folder.path());
  EXPECT_EQ(word(report.verdict), "unclear");
  ASSERT_FALSE(report.unseen.empty());
  EXPECT_EQ(report.unseen.front(), "no GPU and no NIC was seen");
  // A captured tree whose /sys is cut down.
  std::filesystem::create_directories(folder.path() + "/sys/class/net/lo");
  const auto cut = report_of(folder.path());
  EXPECT_EQ(word(cut.verdict), "unclear");
  EXPECT_EQ(text_named(cut, "sys/").state, topology::ReadState::failed);
}

TEST(DoctorReading, AGateMayAskForEverySubject) {
  const Folder folder;
  folder.write("topo.txt", kMatrix);
  auto report = report_of(folder.path());
  EXPECT_EQ(exit_code(report.verdict), 0);
  be_strict(report);
  EXPECT_EQ(exit_code(report.verdict), 4) << "nothing of PCIe is in a matrix";
}

constexpr const char* kPaste =
    "$ nvidia-smi topo -m\n%MATRIX%\n$ ibv_devinfo -v\n"
    "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tlink_layer:\tInfiniBand\n"
    "\nhca_id:\tmlx5_1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tlink_layer:\tInfiniBand\n\n"
    "$ cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz root=/dev/sda1 amd_iommu=pt\n$ ulimit -l\n64\n";

std::string paste() {
  std::string text = kPaste;
  text.replace(text.find("%MATRIX%"), 8, kMatrix);
  return text;
}

TEST(DoctorReading, APasteSaysTheSameAloneInAFolderAndInFences) {
  const auto whole = paste();
  std::string fenced;
  for (const auto line : topology::text::lines(whole)) {
    if (line.starts_with("$ ")) fenced += fenced.empty() ? "I see this:\n```\n" : "```\n\nand\n\n```\n";
    fenced += std::string(line) + "\n";
  }
  fenced += "```\n";
  for (const auto& text : {paste(), fenced}) {
    const Folder folder;
    const auto file = folder.write("report.txt", text);
    for (const auto& path : {file, folder.path()}) {
      const auto report = report_of(path);
      EXPECT_EQ(report.read.size(), 4U) << path;
      EXPECT_TRUE(has(report, "iommu-misspelled")) << path;
      EXPECT_TRUE(has(report, "memlock", Level::broken)) << path;
      for (const auto& one : report.read) EXPECT_EQ(one.state, topology::ReadState::read) << one.where << one.gave;
    }
  }
}

TEST(DoctorReading, EvidenceNamesTheLineInTheFile) {
  const Folder folder;
  const auto found = read_case(folder.write("report.txt", paste()));
  ASSERT_TRUE(found);
  const auto text = paste();
  const auto lines = std::count(text.begin(), text.begin() + static_cast<long>(text.find("\n64\n")) + 1, '\n') + 1;
  EXPECT_EQ(found->facts.find("limit.memlock")->where, "report.txt:" + std::to_string(lines));
}

TEST(DoctorReading, WhatToolsSayBecomesFacts) {
  const auto server = healthy();
  Facts facts;
  const auto read = [&](std::string_view text, const char* name) {
    EXPECT_TRUE(read_pasted(text, name, server.now.machine, facts)) << name;
  };
  read(
      "[    0.0] Linux version 5\n[    1.803311] iommu: Default domain type: Translated\n"
      "[    1.803317] iommu: DMA domain TLB invalidation policy: lazy mode\n"
      "[    2.114502] pci 0000:01:00.0: Adding to iommu group 31\n"
      "[    8.311209] mlx5_core 0000:82:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link "
      "at "
      "0000:80:03.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n"
      "[  912.220114] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n",
      "dmesg.txt");
  EXPECT_EQ(facts.text("pci.0000:01:00.0.iommu_type"), "DMA-FQ");
  EXPECT_EQ(facts.text("kernel.pcie_limited.0000:82:00.0.gbps"), "63.008");
  EXPECT_NE(facts.find("kernel.sxid.0000:c1:00.0.20034"), nullptr);
  read("/sys/kernel/iommu_groups/7/type:DMA\n", "iommu.txt");
  EXPECT_EQ(facts.text("iommu.group.7"), "DMA");
  read("kernel.numa_balancing = 1\nvm.nr_hugepages = 0\n", "sysctl.txt");
  EXPECT_EQ(facts.text("kernel.numa_balancing"), "1");
  read("Filesystem      Size  Used Avail Use% Mounted on\nshm              64M   61M  3.0M  96% /dev/shm\n", "df.txt");
  EXPECT_EQ(facts.text("host.dev_shm.bytes"), "67108864");
  read("NIC statistics:\n     rx_discards_phy: 5512201\n     rx_packets: 9\n", "ethtool_S_ens2f0np0.txt");
  EXPECT_EQ(facts.text("net.ens2f0np0.stat.rx_discards_phy"), "5512201");
  read(
      "a:1:2 [0] NCCL INFO NET/IB : No device found.\na:1:2 [0] NCCL INFO Using network Socket\n"
      "a:1:2 [0] NCCL INFO NCCL_IB_HCA set by environment to mlx5.\n"
      "a:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 5 > 4)\n"
      "a:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0/GDRDMA\n"
      "a:1:2 [0] NCCL WARN NET/IB : Got completion with error 12\n",
      "nccl.log");
  EXPECT_EQ(facts.text("nccl.network"), "Socket");
  EXPECT_EQ(facts.text("env.NCCL_IB_HCA"), "mlx5");
  EXPECT_NE(facts.find("nccl.gdr_off.0.1"), nullptr);
  EXPECT_EQ(facts.text("nccl.channels.NET/IB"), "1");
  EXPECT_EQ(facts.text("nccl.warning.1"), "NET/IB : Got completion with error 12");
}

TEST(DoctorReading, WhatAToolCallsWrongIsNoOk) {
  for (const auto& [words, verdict] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[  912.220114] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n",
            "broken"},
           {"a:1:2 [0] NCCL WARN NET/IB : Got completion with error 12\n", "degraded"},
           {"GPU 0: NVIDIA H100 (UUID: GPU-0)\n\t Link 0: CRC Errors: 99121\n", "degraded"},
           {"Filesystem      Size  Used Avail Use% Mounted on\nshm              64M   61M  3.0M  96% /dev/shm\n",
            "degraded"}}) {
    const Folder folder;
    folder.write("topo.txt", kMatrix);
    folder.write("said.txt", words);
    const auto report = report_of(folder.path());
    EXPECT_EQ(word(report.verdict), verdict) << words;
    EXPECT_TRUE(report.unseen.empty()) << "a rule judges it: " << words;
  }
}

TEST(DoctorReading, AnSmmuTranslatesByDesign) {
  Facts facts;
  EXPECT_TRUE(
      read_pasted("[    1.0] arm-smmu-v3 arm-smmu-v3.0: ias 48-bit\n[    1.1] iommu: Default domain type: "
                  "Translated\n[    2.1] pci 0000:01:00.0: Adding to iommu group 31\n",
                  "dmesg.txt", {}, facts));
  EXPECT_EQ(facts.find("pci.0000:01:00.0.iommu_type"), nullptr);
}

TEST(DoctorReading, RatesAmongTheTextsAreMeasurements) {
  const Folder folder;
  folder.write("topo.txt", kMatrix);
  folder.write("p2p.txt",
               "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, NVIDIA H100, pciBusID: 1, pciDeviceID: 0, "
               "pciDomainID:0\nUnidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n     0 "
               "2491.21  11.33 \n     1  11.41 2502.70 \nUnidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix "
               "(GB/s)\n   D\\D     0      1 \n     0 2493.77   4.87 \n     1   4.91 2511.02 \n"
               "Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n     0 2519.40  9.02 \n");
  folder.write("nvb.txt",
               "nvbandwidth Version: v0.8\nRunning x.\n[CUDA_ERROR_NOT_PERMITTED] operation not permitted in "
               "expression cuMemCreate(&h) on host-a, rank = 0\n");
  auto found = read_case(folder.path());
  ASSERT_TRUE(found) << found.status().message();
  EXPECT_EQ(std::erase_if(found->measured, [](const auto& row) { return row.failed; }), 1U);
  ASSERT_EQ(found->measured.size(), 4U);
  EXPECT_FALSE(found->measured[0].flow) << "through host memory";
  ASSERT_TRUE(found->measured[2].flow);
  EXPECT_NEAR(found->measured[2].gbps, 4.87 * 8, 0.01);
  for (const auto& one : found->read) {
    if (one.where == "nvb.txt") {
      EXPECT_EQ(one.state, topology::ReadState::failed);
      EXPECT_NE(one.gave.find("operation not permitted"), std::string::npos) << one.gave;
    }
  }
}

TEST(DoctorReading, OtherProgramsRatesInTheirUnits) {
  const auto rates = [](const char* text) {
    const auto rows = read_measurements({}, text, "m.txt", {});
    EXPECT_TRUE(rows) << rows.status().message();
    return rows && !rows->empty() ? rows->back().gbps : 0;
  };
  EXPECT_NEAR(rates("# OSU MPI Bandwidth Test v7.0\n# Size      Bandwidth (MB/s)\n4194304  10000.00\n"), 80, 0.01);
  EXPECT_NEAR(rates("# OSU MPI Bi-Directional Bandwidth Test v7.0\n# Size Bandwidth (MB/s)\n4194304 10000.00\n"), 40,
              0.01);
  EXPECT_NEAR(rates("# Benchmarking PingPong\n       #bytes #repetitions      t[usec]   Mbytes/sec\n      4194304     "
                    "      10       398.12     10535.28\n"),
              84.28, 0.01);
  EXPECT_NEAR(rates("|    Stage     | # iterations | x |\nFinal:  5000  0.514   169.871   169.922     5886.87    "
                    "5000.00        5887        5885\n"),
              41.94, 0.01);
  EXPECT_NEAR(rates("Connecting to host a, port 5201\n[ ID] Interval\n[  5] 0.00-10.00 sec 4 GBytes 3.9 Gbits/sec "
                    "receiver\n[SUM]   0.00-10.00  sec  45.5 GBytes  39.1 Gbits/sec                  receiver\n"),
              39.1, 0.01);
  EXPECT_NEAR(rates("Block Size (B)      Batch Size     B/W (GB/Sec)\n4194304   1   45.5   12\n"), 364, 0.01);
  // Both ways together say nothing of one.
  EXPECT_NEAR(rates("                    RDMA_Write Bidirectional BW Test\n Device         : mlx5_0\n #bytes     "
                    "#iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      5000           "
                    "  180.00             180.00               0.3\n"),
              90, 0.01);
}

TEST(DoctorReading, ACapabilityListOfTwoHundredBytesSaysNothingOfAcs) {
  Facts facts;
  EXPECT_TRUE(read_pasted("00:01.0 PCI bridge: A\n\tCapabilities: [60] Express (v2) Root Port (Slot+), MSI 00\n",
                          "l.txt", {}, facts));
  EXPECT_EQ(facts.find("pci.0000:00:01.0.acs"), nullptr);
  EXPECT_NE(facts.why_not("pci.0000:00:01.0.acs").find("256 bytes"), std::string::npos);
  EXPECT_TRUE(
      read_pasted("00:01.0 PCI bridge: A\n\tCapabilities: [60] Express (v2) Root Port\n\tCapabilities: [148 v1] "
                  "Advanced Error Reporting\n",
                  "m.txt", {}, facts));
  EXPECT_EQ(facts.text("pci.0000:00:01.0.acs"), "0000");
}

}  // namespace
}  // namespace fairway::doctor::testing
