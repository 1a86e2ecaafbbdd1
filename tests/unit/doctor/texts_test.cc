#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"

// What single texts of the field say, and that a rule judges it.
namespace fairway::doctor::testing {
namespace {

TEST(DoctorTexts, OneNicThatIsDownIsTheWholeMessageOfItsText) {
  const std::string ibstat =
      "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n\t\tRate: 10\n";
  EXPECT_TRUE(has(alone(ibstat), "port-down", Level::broken));
  // Of a machine that is known to have more it may be a spare one.
  const auto whole = alone(ibstat + "00:00.0 Host bridge: A\n0a:00.0 Non-Volatile memory controller: B\n");
  EXPECT_TRUE(has(whole, "port-down"));
  EXPECT_FALSE(has(whole, "port-down", Level::warning));
}

TEST(DoctorTexts, OnlyTheFaultsThatNvlinksCountAreErrors) {
  const auto report = beside_matrix("e.txt",
                                    "GPU 0: NVIDIA B200 (UUID: GPU-0)\n\t Link 0: Tx packets: 8812003\n"
                                    "\t Link 0: Rx bytes: 991823\n\t Link 0: Malformed packet Errors: 0\n"
                                    "\t Link 0: Link recovery successful events: 3\n\t Link 0: Effective Errors: 0\n"
                                    "\t Link 0: Effective BER: 15e-255\n\t Link 0: FEC Errors - 0: 9123123\n");
  EXPECT_FALSE(has(report, "nvlink-errors"));
  EXPECT_EQ(text_named(report, "e.txt").state, topology::ReadState::read);
  EXPECT_TRUE(has(beside_matrix("e.txt", "GPU 0: NVIDIA H100 (UUID: GPU-0)\n\t Link 3: Recovery Errors: 812\n"),
                  "nvlink-errors", Level::warning));
}

std::string smi_query(const char* state, const char* load) {
  return std::string(
             "==============NVSMI LOG==============\n\nAttached GPUs                             : 1\n"
             "GPU 00000000:81:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n    PCI\n"
             "        GPU Link Info\n            PCIe Generation\n"
             "                Max                       : 5\n                Current                   : 1\n"
             "            Link Width\n                Max                       : 16x\n"
             "                Current                   : 16x\n    Performance State                     : ") +
         state + "\n    Utilization\n        Gpu                               : " + load + " %\n";
}

TEST(DoctorTexts, ABusyGpuInGenerationOneIsSlowAndARestingOneIsNot) {
  const auto level = [](const Report& report) {
    const auto* finding = find(report, "pcie-speed");
    return finding == nullptr ? Level::broken : finding->level;
  };
  // NVML's largest generation is that of both ends, so the slot need not be known.
  EXPECT_EQ(level(alone(smi_query("P0", "98") + kPairMatrix)), Level::warning);
  EXPECT_EQ(level(alone(smi_query("P8", "12") + kPairMatrix)), Level::note);
  EXPECT_EQ(level(alone(smi_query("P0", "0") + kPairMatrix)), Level::note);
}

TEST(DoctorTexts, ThrottlingNamesItsReason) {
  const auto report = alone(smi_query("P0", "98") +
                            "    Persistence Mode                      : Enabled\n    Clocks Event Reasons\n"
                            "        HW Slowdown                       : Active\n"
                            "            HW Thermal Slowdown           : Not Active\n"
                            "            HW Power Brake Slowdown       : Active\n");
  ASSERT_TRUE(has(report, "gpu-throttled", Level::warning));
  EXPECT_NE(find(report, "gpu-throttled")->title.find("hw_power_brake"), std::string::npos)
      << find(report, "gpu-throttled")->title;
}

TEST(DoctorTexts, AnInterfaceBelowItsFastestModeIsSaid) {
  const std::string ethtool =
      "Settings for ens2f0np0:\n\tSupported link modes:   100000baseCR4/Full\n"
      "\t                        400000baseCR4/Full\n\tAdvertised link modes:  800000baseCR4/Full\n"
      "\tSpeed: 100000Mb/s\n\tLink detected: yes\n";
  const auto unknown = beside_matrix("ethtool.txt", ethtool);
  ASSERT_TRUE(has(unknown, "port-rate"));
  EXPECT_NE(find(unknown, "port-rate")->title.find("100 of 400 Gb/s"), std::string::npos);
  EXPECT_FALSE(has(unknown, "port-rate", Level::warning)) << "it may be all that the switch has";
  const std::string links =
      "mlx5_0 port 1 ==> ens2f0np0 (Up)\nmlx5_1 port 1 ==> ens3f0np0 (Up)\n"
      "Settings for ens3f0np0:\n\tSpeed: 400000Mb/s\n\tLink detected: yes\n"
      "Infiniband device 'mlx5_1' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\trate:\t\t 400 Gb/sec (4X NDR)\n"
      "\tlink_layer:\t Ethernet\n"
      "Infiniband device 'mlx5_0' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\trate:\t\t 100 Gb/sec (4X EDR)\n"
      "\tlink_layer:\t Ethernet\n";
  EXPECT_TRUE(has(beside_matrix("all.txt", ethtool + links), "port-rate", Level::warning));
  EXPECT_FALSE(has(beside_matrix("ethtool.txt",
                                 "Settings for e0:\n\tSupported link modes:   100000baseCR4/Full\n"
                                 "\tSpeed: 100000Mb/s\n"),
                   "port-rate"));
}

TEST(DoctorTexts, StatisticsOfAnInterfaceThatIsNobodysAreJudged) {
  const auto report = beside_matrix("ethtool_S_ens2f0np0.txt",
                                    "NIC statistics:\n     rx_discards_phy: 5512201\n     rx_symbol_err_phy: 41221\n"
                                    "     link_down_events_phy: 14\n");
  EXPECT_TRUE(has(report, "nic-discards"));
  EXPECT_TRUE(has(report, "port-errors"));
  EXPECT_EQ(word(report.verdict), "ok") << "one reading does not say when it happened";
}

TEST(DoctorTexts, TimeoutsOfAnInfinibandPortAreErrorsOfIt) {
  const std::string devices =
      "hca_id:\tmlx5_1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tlink_layer:\t\tInfiniBand\n\n";
  const auto report = beside_matrix("s.txt", devices + "link mlx5_1/1 local_ack_timeout_err 91316 out_of_sequence 5\n");
  ASSERT_TRUE(has(report, "port-errors"));
  EXPECT_NE(find(report, "port-errors")->title.find("91316"), std::string::npos);
}

TEST(DoctorTexts, ALimitOfKibibytesIsNotZero) {
  const auto report =
      beside_matrix("limits", "Max locked memory         65536                65536                bytes     \n");
  ASSERT_TRUE(has(report, "memlock"));
  EXPECT_NE(find(report, "memlock")->title.find("64 KiB"), std::string::npos) << find(report, "memlock")->title;
}

TEST(DoctorTexts, AnUncorrectedErrorIsSeenBehindACorrectedOne) {
  const auto report = beside_matrix(
      "dmesg.txt",
      "[    1.0] pcieport 0000:80:03.0: AER: Corrected error received: 0000:82:00.0\n"
      "[    2.0] pcieport 0000:80:03.0: AER: Uncorrected (Non-Fatal) error received: 0000:82:00.0\n"
      "[    3.0] mlx5_core 0000:82:00.0: Port module event[error]: module 0, Cable error, Bus stuck\n"
      "[    4.0] mlx5_core 0000:82:00.0: Port module event[error]: module 0, Cable error, High Temperature\n");
  std::size_t warnings = 0;
  for (const auto& finding : report.findings)
    warnings += finding.rule == "log-complaints" && finding.level == Level::warning ? 1 : 0;
  EXPECT_EQ(warnings, 2U);
}

TEST(DoctorTexts, ADriverWithoutAnyGpuIsSaid) {
  const Folder folder;
  std::filesystem::create_directories(folder.path() + "/sys/class/net/lo");
  std::filesystem::create_directories(folder.path() + "/proc/driver/nvidia");
  folder.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n");
  const auto report = report_of(folder.path());
  EXPECT_EQ(word(report.verdict), "unclear");
  EXPECT_NE(text_of(report, {}, false).find("NVIDIA's driver is loaded and no GPU can be seen"), std::string::npos);
}

TEST(DoctorTexts, AJobsLogIsJudgedWithoutAnyGpuOnRecord) {
  EXPECT_TRUE(
      has(alone("a:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 5 > 4)\n"), "gdr-refused"));
}

TEST(DoctorTexts, WhatMlxlinkCallsFaultyIsAFinding) {
  const std::string info =
      "$ mlxlink -d mlx5_1 -c\nOperational Info\n----------------\nState                              : Active\n\n"
      "Troubleshooting Info\n--------------------\nStatus Opcode                      : %1\n"
      "Recommendation                     : %2\n\nPhysical Counters and BER Info\n"
      "Effective Physical Errors          : %3\n";
  const auto with = [&](const char* opcode, const char* words, const char* errors) {
    auto text = info;
    text.replace(text.find("%1"), 2, opcode);
    text.replace(text.find("%2"), 2, words);
    text.replace(text.find("%3"), 2, errors);
    return beside_matrix("m.txt", text);
  };
  EXPECT_FALSE(has(with("0", "No issue was observed", "0"), "link-diagnosis"));
  EXPECT_TRUE(has(with("34", "Speed degradation", "0"), "link-diagnosis", Level::warning));
  EXPECT_TRUE(has(with("0", "No issue was observed", "12"), "link-diagnosis"));
}

TEST(DoctorTexts, LinksOfAFabricBelowTheirBestAreNamed) {
  const std::string good =
      "Switch: 0x0002c9020046c588 MF0;leaf1:\n           2   17[  ] ==( 4X      53.125 Gbps Active/  LinkUp)==>       "
      "4    1[  ] \"n02 mlx5_0\" ( )\n           2   18[  ] ==(                Down/ Polling)==>             [  ] \"\" "
      "( )\n";
  EXPECT_FALSE(has(beside_matrix("f.txt", good), "fabric-links"));
  const auto slow = beside_matrix(
      "f.txt",
      good +
          "           2   19[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       5    1[  ] \"n03 mlx5_0\" "
          "( Could be 53.125 Gbps)\n           2   20[  ] ==( 4X      53.125 Gbps Initialize/  LinkUp)==>      "
          " 6    1[  ] \"n04 mlx5_0\" ( )\n");
  std::size_t found = 0;
  for (const auto& finding : slow.findings) found += finding.rule == "fabric-links" ? 1U : 0U;
  EXPECT_EQ(found, 2U);
  EXPECT_NE(find(slow, "fabric-links")->evidence.at(0).text.find("port 19"), std::string::npos);
  const auto narrow = beside_matrix(
      "n.txt",
      "vendid=0x8f1\nSwitch\t24 \"S-005442ba00003080\"\t\t# \"ISR9024 Voltaire\" base port 0 lid 6 lmc 0\n"
      "[1]\t\"S-0008f10400410015\"[10]\t\t# \"SW-6IB4\" lid 6 1xSDR\n[3]\t\"S-0008f10400410015\"[6]\t\t# \"SW-6IB4\" "
      "lid "
      "6 4xSDR\n");
  EXPECT_TRUE(has(narrow, "fabric-links"));
}

TEST(DoctorTexts, ErrorsOfGaudisMemoryAreFound) {
  EXPECT_TRUE(has(alone("| HL-SMI Version:                              hl-1.17.1-fw-51.5.0          |\n"
                        "|   0  HL-225              N/A  | 0000:4d:00.0     N/A |                   3  |\n"),
                  "gpu-memory"));
}

TEST(DoctorTexts, AQuerysColumnsAreJudged) {
  const auto report = beside_matrix("q.csv",
                                    "index, pci.bus_id, pcie.link.width.current, pcie.link.width.max, "
                                    "ecc.errors.uncorrected.volatile.total\n0, 00000000:01:00.0, 8, 16, 0\n"
                                    "1, 00000000:81:00.0, 16, 16, 3\n");
  EXPECT_TRUE(has(report, "pcie-width", Level::warning));
  EXPECT_TRUE(has(report, "gpu-memory", Level::warning));
}

TEST(DoctorTexts, ACollectedEnvironmentIsReadAsItsParts) {
  const auto report =
      alone(std::string("PyTorch version: 2.6.0+cu124\nIs debug build: False\n\nGPU models and configuration: "
                        "\nGPU 0: NVIDIA H100 80GB HBM3\n\n[pip3] torch==2.6.0\nGPU Topology:\n") +
            kPairMatrix + "\nNCCL_IB_DISABLE=1\n");
  EXPECT_TRUE(has(report, "rdma-disabled", Level::warning));
  for (const auto& one : report.read) EXPECT_EQ(one.state, topology::ReadState::read) << one.where << " " << one.gave;
}

TEST(DoctorTexts, ThePageOfASickMachineSaysHowManyRulesChecked) {
  const auto report = alone("CA 'mlx5_0'\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n");
  EXPECT_NE(html_of({}, report).find(" rules checked.</p>"), std::string::npos);
}

TEST(DoctorTexts, WrongResultsOfACollectiveAreNoRate) {
  const std::string table =
      "# nThread 1 nGpus 8 minBytes 8\n#       size         count      type   redop    root     time   algbw   busbw "
      "#wrong\n   1073741824     268435456     float     sum      -1   4321.0  248.49  434.86    17   4300.0  249.70  "
      "436.98      0\n# Out of bounds values : ";
  EXPECT_TRUE(has(beside_matrix("a.txt", table + "17 FAILED\n"), "run-failed", Level::warning));
  EXPECT_FALSE(has(beside_matrix("a.txt", table + "0 OK\n"), "run-failed"));
}

TEST(DoctorTexts, ErrorsThatIpCountsAreFound) {
  const std::string link =
      "3: ens2f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT\n"
      "    link/ether 00:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n"
      "    RX:  bytes packets errors dropped  missed   mcast           \n    81234123   1203122 %1    91231       0    "
      "   0 \n";
  const auto with = [&](const char* errors) {
    auto text = link;
    text.replace(text.find("%1"), 2, errors);
    return beside_matrix("ip.txt", text);
  };
  EXPECT_TRUE(has(with("554123"), "port-errors"));
  EXPECT_FALSE(has(with("0"), "port-errors"));
}

TEST(DoctorTexts, EvidenceNamesTheCommandThatPrintedTheValue) {
  EXPECT_NE(title_of(alone("CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n"),
                     "port-down")
                .find("port 1 (ibstat, paste.txt:1)"),
            std::string::npos);
  EXPECT_NE(title_of(alone("link mlx5_0/1 state DOWN physical_state POLLING\n"), "port-down")
                .find("port 1 (rdma link, paste.txt:1)"),
            std::string::npos);
  EXPECT_NE(title_of(alone(smi_query("P0", "98") + kPairMatrix), "pcie-speed")
                .find("link speed (nvidia-smi -q, paste.txt:1)"),
            std::string::npos);
}

TEST(DoctorTexts, WhatCommandsOfTheFieldPrintIsReadWhole) {
  const auto is_whole = [](const std::string& text, const char* gave) {
    const auto report = alone(text);
    for (const auto& one : report.read) {
      EXPECT_EQ(one.state, topology::ReadState::read) << one.what << ": " << one.gave << "\n" << text;
    }
    EXPECT_NE(report.read.at(0).gave.find(gave), std::string::npos) << report.read.at(0).gave;
  };
  is_whole("$ rdma statistic show link mlx5_0/1 -p\nlink mlx5_0/1\n    rx_write_requests 0\n    out_of_sequence 991\n",
           "1 port");
  is_whole("link mlx5_0/1 lid 13 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n    caps: <SM, NOTICE>\n",
           "1 port");
  is_whole("Every 1.0s: ethtool -S e1 | grep disc     n1: Tue Mar  3 10:15:22 2026\n\n     rx_discards_phy: 1\n",
           "e1: 1 counters");
  is_whole("$ uname -r\n5.15.0-97-generic\n", "kernel 5.15.0-97-generic");
  is_whole(
      "$ tail -n +1 /sys/class/infiniband/mlx5_0/ports/1/rate\n==> /sys/class/infiniband/mlx5_0/ports/1/rate <==\n"
      "400 Gb/sec (4X NDR)\n",
      "1 file");
  is_whole(
      "Mar 03 10:15:22 gpu01 kernel: NVRM: Xid (PCI:0000:4e:00): 94, pid=1\nMar 03 10:15:25 gpu01 systemd[1]: Started "
      "x.\n",
      "XID 94");
  EXPECT_EQ(alone(std::string(kPairMatrix) + "$ ibstat\n/bin/sh: 1: ibstat: not found\n").read.back().state,
            topology::ReadState::failed);
}

TEST(DoctorTexts, AnEmptyPromptIsNoOutput) {
  const std::string port =
      "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n";
  for (const std::string& text :
       std::vector<std::string>{"```\n$ \n```\n```console\n$ ibstat\n" + port + "$\n```\n",
                                "```\n```\n```sh\n#\n```\n```\n" + port + "```\n",
                                "root@g1:~# ibstat\n" + port + "root@g1:~# exit\n[root@g1 ~]#\n",
                                "u@g1:/tmp$ ibstat\n" + port + "u@g1:/tmp$\n"})
    EXPECT_EQ(word(alone(text).verdict), "ok") << text << line_of(alone(text));
}

TEST(DoctorTexts, WordsBetweenMeasuredRowsSwallowNone) {
  const auto report = alone(
      "# OSU MPI Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n65536                  20000.11\nAs you see it "
      "drops here:\n131072                  5000.11\n\nand again\n4194304                 5100.11\n");
  EXPECT_NE(report.read.at(0).gave.find("3 measured rows"), std::string::npos) << report.read.at(0).gave;
  const auto title = title_of(report, "large-message-dip");
  EXPECT_TRUE(title.starts_with("osu_bw: messages of 128 KiB reach 40")) << title;
  EXPECT_NE(title.find("paste.txt:5"), std::string::npos) << title;
}

TEST(DoctorTexts, LinesOfUcxAreNotTheKernels) {
  const auto report =
      beside_matrix("u.txt",
                    "[1700000000.1] [node:1:0] ucp_context.c:1071 UCX  WARN network device 'mlx5_9:1' is not "
                    "available\n");
  EXPECT_EQ(text_named(report, "u.txt").what, "UCX's log");
  EXPECT_TRUE(has(report, "job-warnings", Level::note));
}

TEST(DoctorTexts, MutatedTextsNeverCrash) {
  const std::string seeds[] = {
      smi_query("P0", "98") + kPairMatrix,
      "$ mlxlink -d mlx5_1 -c\nOperational Info\nState  : Active\nSpeed : 200G\nStatus Opcode : 34\nEffective Physical "
      "Errors : 3\n",
      "CA: n1 mlx5_0:\n  0xec0d9a03003d62be  4  1[  ] ==( 4X  25.78125 Gbps Active/  LinkUp)==>  2 17[  ] \"U1\" ( "
      "Could be "
      "53 Gbps)\n",
      "Switch\t24 \"S-005442ba00003080\"\t# \"ISR9024\" base port 0\n[22]\t\"H-0008\"[1](8f)\t# \"n1 mlx5_0\" lid 4 "
      "1xSDR\n",
      "GPU: 0\n    BDF: 0000:0c:00.0\nLINK TYPE TABLE:\n     0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 SELF XGMI\n"
      "0000:22:00.0 XGMI SELF\n",
      "mx-smi  version: 2\n| 0  MetaX C550 | 0000:0f:00.0 | 0% |\n   GPU0 GPU1\nGPU0 X MX\nGPU1 MX X\n",
      "| HL-SMI Version: 1 |\n|   0  HL-225  N/A  | 0000:4d:00.0  N/A |  3  |\n| N/A | 768MiB / 98304MiB | 0% |\n",
      "index, pci.bus_id, pcie.link.width.current\n0, 00000000:01:00.0, 8\nSettings for e0:\n\tSupported link modes: "
      "400000baseCR4/Full\n\tSpeed: 100000Mb/s\n",
      "node1: CA 'mlx5_0'\nnode2: CA 'mlx5_0'\nnode1: \tPort 1:\nnode2: \tPort 1:\nnode2: \t\tState: Down\n",
      "==> /sys/class/infiniband/mlx5_0/ports/1/rate <==\n100 Gb/sec (4X EDR)\n/sys/class/net/e0/speed:100\n",
      "----\nn1\n----\nlink mlx5_0/1 state DOWN x 1\n$ lspci -s 1:0.0\n LnkCap: Port, Speed 8GT/s, Width x8\n "
      "LnkSta: Speed 8GT/s, Width x4\n",
      "3: e0: <UP> mtu 1500\n    RX: bytes packets errors dropped\n    1 2 3 4\n> GPU 0: H100 (UUID: GPU-0)\n Link 0: "
      "CRC "
      "Errors: 9\n"};
  const Folder folder;
  std::uint32_t random = 7;
  const auto below = [&random](std::size_t n) {
    random = random * 1664525U + 1013904223U;
    return n == 0 ? 0 : (random >> 8U) % n;
  };
  for (const auto& seed : seeds) {
    for (unsigned round = 0; round < 40; ++round) {
      auto text = seed;
      for (unsigned i = 0; i < 4 && !text.empty(); ++i) {
        const auto at = below(text.size());
        switch (below(4)) {
          case 0: text[at] = static_cast<char>(below(256)); break;
          case 1: text.resize(at); break;
          case 2: text.erase(at, 1 + below(20)); break;
          default: text[at] = "0123456789-<>\"{}[]:,. \tX"[below(24)]; break;
        }
      }
      const auto found = read_case(folder.write("t.txt", text));
      if (!found) EXPECT_FALSE(found.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace fairway::doctor::testing
