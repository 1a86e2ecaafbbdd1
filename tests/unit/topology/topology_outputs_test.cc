// size: a sample of each kind of output, which most of these tests go through
#include <algorithm>

#include <fmt/format.h>

#include "topology/load.h"
#include "topology/text.h"
#include "topology_support.h"

// Texts cut into outputs, and each output read by its one reader.
namespace fairway::topology {
namespace {

using Kind = OutputKind;

struct Sample {
  Kind kind;
  const char* text;
};

// The first lines of each, as the tools print them.
constexpr Sample kSamples[] = {
    {Kind::topo_matrix,
     "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tSYS\tPIX\nGPU1\tSYS\t X \tSYS\nNIC0\tPIX\tSYS\t X \n\nLegend:\n\n"
     "  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"},
    {Kind::topo_peers, " \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"},
    {Kind::gpu_query, "index, pci.bus_id, name\n0, 00000000:01:00.0, NVIDIA H100\n"},
    {Kind::smi_query,
     "\n==============NVSMI LOG==============\n\nDriver Version : 550.90.07\nAttached GPUs : 1\n"
     "GPU 00000000:01:00.0\n    Product Name                          : NVIDIA H100\n"},
    {Kind::smi_table,
     "Tue Mar  3 10:15:22 2026\n+----+\n| NVIDIA-SMI 550.90.07     Driver Version: 550.90.07    CUDA Version: 12.4 |\n"
     "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:01:00.0 Off |                    0 |\n"},
    {Kind::nvlink, "GPU 0: NVIDIA H100 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"},
    {Kind::rocm_smi,
     "==== ROCm System Management Interface ====\n=== Link Type between two GPUs ===\n"
     "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n"},
    {Kind::amd_smi, "GPU: 0\n    BDF: 0000:0c:00.0\n    UUID: 1\n\nGPU: 1\n    BDF: 0000:22:00.0\n    UUID: 2\n"},
    {Kind::amd_smi,
     "LINK TYPE TABLE:\n             0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 SELF         XGMI\n"
     "0000:22:00.0 XGMI         SELF\n\n"},
    {Kind::mx_smi,
     "mx-smi  version: 2.2.4\n\n=================== MetaX System Management Interface Log ===================\n"
     "Timestamp                                         : Tue Jul 29 12:16:08 2025\n\n"
     "Attached GPUs                                     : 2\n        GPU0    GPU1\nGPU0    X       MX\n"
     "GPU1    MX      X\n"},
    {Kind::hl_smi,
     "+-----------------------------------------------------------------------------+\n"
     "| HL-SMI Version:                              hl-1.17.1-fw-51.5.0          |\n"
     "|   0  HL-225              N/A  | 0000:4d:00.0     N/A |                   0  |\n"},
    {Kind::hl_smi, "modID   CPU Affinity    NUMA Affinity\n0       0-39, 80-119    0\n"},
    {Kind::driver_version, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07\nGCC version:  12\n"},
    {Kind::lspci, "01:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n\tNUMA node: 0\n"},
    {Kind::lspci, "0000:01:00.0 0302: 10de:2330 (rev a1)\n"},
    {Kind::lspci, "01:00.0 Class 0302: Device 10de:2330 (rev a1)\n"},
    {Kind::lspci_drawing, "-[0000:00]-+-00.0  Intel Corporation Device 09a2\n           +-01.0-[01]--\n"},
    {Kind::sysfs_links,
     "total 0\nlrwxrwxrwx 1 root root 0 Jan  1 00:00 mlx5_0 -> "
     "../../devices/pci0000:20/0000:20:01.0/0000:24:00.0/infiniband/mlx5_0\n"},
    {Kind::iommu_types, "/sys/kernel/iommu_groups/31/type:DMA-FQ\n"},
    {Kind::ibv_devinfo,
     "hca_id:\tmlx5_0\n\ttransport:\t\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\tPORT_ACTIVE (4)\n"},
    {Kind::ibdev2netdev, "mlx5_0 port 1 ==> eth0 (Up)\n"},
    {Kind::ibstat, "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling\n"},
    {Kind::ibstatus,
     "Infiniband device 'mlx5_0' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\trate:\t\t 400 Gb/sec (4X NDR)\n"},
    {Kind::show_gids,
     "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4\t\tVER\tDEV\n---\t----\t-----\nmlx5_0\t1\t3\t"
     "0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1\tv2\teth0\n"},
    {Kind::rdma_link, "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0 \n"},
    {Kind::rdma_statistic, "link mlx5_0/1 rx_write_requests 88123 local_ack_timeout_err 91316\n"},
    {Kind::mlxconfig,
     "Device #1:\n----------\n\nDevice:   0000:13:00.0\nConfigurations:  Next Boot\n  MAX_ACC_OUT_READ 44\n"},
    {Kind::mlxlink,
     "Operational Info\n----------------\nState                              : Active\n"
     "Physical state                     : LinkUp\nSpeed                              : 200G\n\n"
     "Troubleshooting Info\n--------------------\nStatus Opcode                      : 0\n"},
    {Kind::iblinkinfo,
     "CA: node1 mlx5_0:\n      0xec0d9a03003d62be      4    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       "
     "2   17[  ] \"MF0;SB7700:MSB7700/U1\" ( )\n"},
    {Kind::ibnetdiscover,
     "#\n# Topology file: generated on Tue Jun  5 14:15:10 2007\n#\n\nvendid=0x8f1\ndevid=0x5a06\n"
     "switchguid=0x5442ba00003080(5442ba00003080)\nSwitch\t24 \"S-005442ba00003080\"\t\t# \"ISR9024 Voltaire\" base "
     "port 0 lid 6 lmc 0\n[22]\t\"H-0008f10403961354\"[1](8f10403961355) \t\t# \"node1 mlx5_0\" lid 4 4xSDR\n"},
    {Kind::ip_link, "3: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP\n    link/ether 00:00:00:00:00:00\n"},
    {Kind::ip_brief, "eth0  UP  10.0.0.1/24\n"},
    {Kind::bonding, "Ethernet Channel Bonding Driver: v5.15.0\n\nBonding Mode: IEEE 802.3ad\nMII Status: up\n"},
    {Kind::ethtool, "Settings for eth0:\n\tSpeed: 100000Mb/s\n\tLink detected: yes\n"},
    {Kind::ethtool_statistics, "NIC statistics:\n     rx_discards_phy: 5512201\n"},
    {Kind::qos, "DCBX mode: OS controlled\nPriority trust state: dscp\nPFC configuration:\n"},
    {Kind::lscpu, "Architecture:            x86_64\n  CPU op-mode(s):        32-bit, 64-bit\nCPU(s):  8\n"},
    {Kind::numactl,
     "available: 2 nodes (0-1)\nnode 0 cpus: 0-3\nnode 0 size: 1000 MB\nnode distances:\nnode   0   1 \n"},
    {Kind::kernel_log,
     "[    0.000000] Linux version 5.15.0 (b@h)\n[ 8112.113377] NVRM: Xid (PCI:0000:01:00): 79, pid=1\n"},
    {Kind::kernel_log, "Mar  3 10:15:22 node1 kernel: mlx5_core 0000:82:00.0: Port module event[error]: module 0\n"},
    {Kind::cmdline, "BOOT_IMAGE=/vmlinuz root=/dev/sda1 amd_iommu=pt\n"},
    {Kind::modules, "Module                  Size  Used by\nnvidia_peermem  16384  0\n"},
    {Kind::modules, "nvidia_peermem         16384  0\n"},
    {Kind::limits, "Limit                     Soft Limit           Hard Limit           Units\n"},
    {Kind::ulimit, "max locked memory           (kbytes, -l) 64\n"},
    {Kind::meminfo, "MemTotal:       1056270288 kB\nHugePages_Total:       0\n"},
    {Kind::sysctl, "kernel.numa_balancing = 1\n"},
    {Kind::uname, "Linux node1 5.15.0-97-generic #107-Ubuntu SMP Wed Feb 7 x86_64 GNU/Linux\n"},
    {Kind::disk_free, "Filesystem      Size  Used Avail Use% Mounted on\nshm  64M   61M  3.0M  96% /dev/shm\n"},
    {Kind::collect_env,
     "PyTorch version: 2.6.0+cu124\nIs debug build: False\n\nOS: Ubuntu 22.04.4 LTS (x86_64)\n[pip3] numpy==1.26.4\n"},
    {Kind::environment, "export NCCL_DEBUG=INFO\n"},
    {Kind::nccl_log, "node-a:2211:2290 [0] NCCL INFO Using network Socket\n"},
    {Kind::ucx_info, "# Memory domain: tcp\n#     Component: tcp\n#      Transport: tcp\n"},
    {Kind::fi_info, "provider: efa\n    fabric: efa\n"},
    {Kind::perftest, "                    RDMA_Write BW Test\n Dual-port       : OFF\n #bytes     #iterations\n"},
    {Kind::nccl_tests, "# nThread 1 nGpus 8 minBytes 8\n#       size         count      algbw   busbw\n"},
    {Kind::nvbandwidth, "nvbandwidth Version: v0.8\nRunning host_to_device_memcpy_ce.\n"},
    {Kind::bench, "path,from,to,operation,bytes,bytes_per_second\n"},
    {Kind::p2p_test, "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nP2P Connectivity Matrix\n"},
    {Kind::osu, "# OSU MPI-CUDA Bandwidth Test v7.0\n# Size      Bandwidth (MB/s)\n1048576  11023.45\n"},
    {Kind::imb, "#----\n#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part\n# Benchmarking PingPong\n"},
    {Kind::ucx_perftest, "|    Stage     | # iterations | 50.0%ile | average | overall |\nFinal:   5000 0.5\n"},
    {Kind::iperf, "Connecting to host 10.0.0.1, port 5201\n[ ID] Interval           Transfer     Bitrate\n"},
    {Kind::nixlbench, "Block Size (B)      Batch Size     B/W (GB/Sec)\n4096  1  1.5\n"},
};

std::vector<Kind> kinds_of(const std::string& text) {
  std::vector<Kind> out;
  for (const auto& output : cut_outputs(text, "t")) out.push_back(output.kind);
  return out;
}

Machine machine_of(const std::string& text) {
  const auto evidence = evidence_of(text, "paste.txt");
  EXPECT_TRUE(evidence) << evidence.status().message();
  return evidence ? evidence->machine : Machine{};
}

TEST(Outputs, EachIsKnownByItsContentAlone) {
  for (const auto& sample : kSamples) {
    EXPECT_EQ(kinds_of(sample.text), std::vector<Kind>{sample.kind}) << to_string(sample.kind) << "\n" << sample.text;
  }
}

TEST(Outputs, InOnePasteTheyAreTheSameBelowPromptsAndInFences) {
  std::string below_prompts;
  std::string in_fences;
  std::vector<Kind> expected;
  for (const auto& sample : kSamples) {
    below_prompts += fmt::format("root@node1:~# cat output\n{}\n", sample.text);
    in_fences += fmt::format("Then I ran this:\n\n```text\n{}```\n\n", sample.text);
    expected.push_back(sample.kind);
  }
  EXPECT_EQ(kinds_of(below_prompts), expected);
  auto fenced = kinds_of(in_fences);
  std::erase(fenced, Kind::unknown);  // the words around
  EXPECT_EQ(fenced, expected);
}

TEST(Outputs, OneAfterAnotherWithoutPromptsIsCutWhereTheNextBegins) {
  const auto kinds = kinds_of(
      "hca_id:\tmlx5_0\n\ttransport:\tInfiniBand (0)\n01:00.0 3D controller: NVIDIA Corporation X\n\tNUMA node: 0\n"
      "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\nlink mlx5_0/1 state ACTIVE physical_state LINK_UP\n");
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::ibv_devinfo, Kind::lspci, Kind::ibstat, Kind::rdma_link}));
}

TEST(Outputs, AnyTwoOneAfterAnotherAreThoseTwo) {
  for (const auto& first : kSamples) {
    for (const auto& second : kSamples) {
      if (first.kind == second.kind) continue;
      for (const auto* between : {"", "\n"}) {
        const auto text = std::string(first.text) + between + second.text;
        EXPECT_EQ(kinds_of(text), (std::vector<Kind>{first.kind, second.kind}))
            << (*between == '\0' ? "" : "with a blank line: ") << text;
      }
    }
  }
}

TEST(Outputs, ABlankLineFarAboveDoesNotCutTheNextOne) {
  const std::string log =
      "==============NVSMI LOG==============\n\nAttached GPUs : 1\nGPU 00000000:01:00.0\n    Utilization\n";
  const std::string matrix = "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n";
  EXPECT_EQ(kinds_of(log + matrix), (std::vector<Kind>{Kind::smi_query, Kind::topo_matrix}));
}

// NCCL's lines stand between those of the program that uses it.
TEST(Outputs, LinesOfLogsAreTakenFromBetweenOthers) {
  const auto outputs = cut_outputs(
      "# nThread 1 nGpus 1\nn:1:2 [0] NCCL INFO Using network IB\n# size count algbw busbw\n"
      "n:1:2 [0] NCCL WARN Call failed\n 8 2 float sum -1 5.1 0.0 0.0 0\n",
      "t");
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0].kind, Kind::nccl_tests);
  EXPECT_EQ(outputs[0].numbers, (std::vector<std::uint32_t>{1, 3, 5}));
  EXPECT_EQ(outputs[0].at(3), "t:5");
  EXPECT_EQ(outputs[1].numbers, (std::vector<std::uint32_t>{2, 4}));
}

TEST(Outputs, AVariablesValueIsNoOutputWhateverItSays) {
  const std::string paste =
      "PATH=/usr/bin\nNCCL_DEBUG=INFO\nTITLE=Send BW Test\nNOTE=ip: command not found\nPS=node kernel: NVRM: Xid "
      "(PCI:0)\n"
      "RAILS=mlx5_0 port 1 ==> eth0 (Up)\nexport FILES=/sys/class/net/eth0/mtu:9000\n";
  const auto outputs = cut_outputs(paste, "paste.txt");
  ASSERT_EQ(outputs.size(), 1U) << to_string(outputs.at(1).kind);
  EXPECT_EQ(outputs.front().kind, OutputKind::environment);
  EXPECT_EQ(outputs.front().numbers.size(), 7U);
  const auto with_options = cut_outputs("PATH=/usr/bin\nBOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt\n", "paste.txt");
  ASSERT_EQ(with_options.size(), 2U);
  EXPECT_EQ(with_options.back().kind, OutputKind::cmdline);
}

TEST(Outputs, WhatIsNotUnderstoodFailedOrEmptyIsSaid) {
  const auto state_of = [](const std::string& text) { return cut_outputs(text, "t").front(); };
  EXPECT_EQ(state_of("").state, ReadState::empty);
  EXPECT_EQ(state_of("\n  \n").state, ReadState::empty);
  EXPECT_EQ(state_of("hello\n").state, ReadState::not_understood);
  EXPECT_EQ(state_of("No devices were found\n").state, ReadState::failed);
  EXPECT_EQ(state_of("bash: nvidia-smi: command not found\n").state, ReadState::failed);
  const auto two = cut_outputs("$ ibstat\n$ uname -r\nfive\n", "t");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].state, ReadState::empty);
  EXPECT_EQ(two[0].command, "ibstat");
  EXPECT_EQ(two[1].command, "uname -r");
}

TEST(Outputs, WhatWrapsAPasteIsTakenOff) {
  const std::string plain = "mlx5_0 port 1 ==> eth0 (Up)\nmlx5_1 port 1 ==> eth1 (Down)\n";
  std::string quoted;
  std::string timed;
  for (const auto line : text::lines(plain)) {
    quoted += "> " + std::string(line) + "\n";
    timed += "2026-03-03T10:00:00.1234567Z " + std::string(line) + "\n";
  }
  auto escaped = plain;
  for (auto at = escaped.find('>'); at != std::string::npos; at = escaped.find('>', at + 4))
    escaped.replace(at, 1, "&gt;");
  for (const auto& text : {quoted, timed, escaped}) {
    const auto outputs = cut_outputs(text, "t");
    ASSERT_EQ(outputs.size(), 1U) << text;
    EXPECT_EQ(outputs[0].kind, Kind::ibdev2netdev) << text;
    EXPECT_EQ(outputs[0].at(2), "t:2");
  }
  EXPECT_EQ(text::without_wrapping("> a\nb\n"), "> a\nb\n") << "not all lines have it";
}

// Else a verdict would be "ok" over what nobody has read.
TEST(Outputs, WordsOfNobodyBehindAnOutputAreNamed) {
  for (const auto& sample : kSamples) {
    if (is_measurement(sample.kind)) continue;  // their readers say what they make of such lines
    const auto kinds = kinds_of(std::string(sample.text) + "\nSome tool of ours 3.1\nit found 17 faults\n");
    EXPECT_EQ(kinds, (std::vector<Kind>{sample.kind, Kind::unknown})) << sample.text;
  }
}

TEST(Outputs, ALogThatNamesADriverIsNotThatDriversFile) {
  EXPECT_EQ(kinds_of("[    1.0] Linux version 6.1.0\n[    4.2] Ethernet Channel Bonding Driver: v6.1.0\n"
                     "[    5.0] bond0: (slave eth0): link status definitely up\n"),
            (std::vector<Kind>{Kind::kernel_log}));
}

TEST(Outputs, AMatrixSwallowsNothingThatIsNotIts) {
  const std::string matrix =
      "\tGPU0\tNIC0\nGPU0\t X \tPIX\nNIC0\tPIX\t X \n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n";
  for (const auto* words : {"some tool: 17 errors\n", "a = 3 faults\n"}) {
    EXPECT_EQ(kinds_of(matrix + words), (std::vector<Kind>{Kind::topo_matrix, Kind::unknown})) << words;
  }
}

TEST(Outputs, AHeadingAboveAFenceIsTheCommandInIt) {
  const auto outputs = cut_outputs(
      "- `ulimit -l`:\n\n  ```\n  64\n  ```\n### nvidia-smi -L\n```\n$ nvidia-smi -L\nGPU 0: NVIDIA H100 (UUID: "
      "GPU-1)\n```\n"
      "$ ibstat\n",
      "t");
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_EQ(outputs[0].kind, Kind::ulimit);
  EXPECT_EQ(outputs[1].kind, Kind::nvlink);
  EXPECT_EQ(outputs[2].state, ReadState::empty) << "a prompt without an answer";
}

TEST(Outputs, AWordThatIsCutOffIsNoState) {
  const auto machine = machine_of("hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tmax_mtu:\t4096 (5)\n\t\t\tstate:\t\t\tPORT_DO");
  EXPECT_FALSE(machine.rdma.at(0).ports.at(0).state);
}

TEST(Outputs, QueriesNameLinksToo) {
  const auto machine = machine_of(
      "index, name, pci.bus_id, pcie.link.width.current, pcie.link.width.max, pcie.link.gen.current, "
      "pcie.link.gen.max, "
      "memory.total [MiB]\n0, NVIDIA H100, 00000000:01:00.0, 8, 16, 4, 5, 81559 MiB\n");
  const auto& link = machine.pci.at(machine.gpus.at(0).pci.index).link;
  EXPECT_EQ(*link.width, 8U);
  EXPECT_EQ(*link.max_width, 16U);
  EXPECT_DOUBLE_EQ(*link.speed_gts, 16);
  EXPECT_DOUBLE_EQ(*link.max_speed_gts, 32);
  EXPECT_EQ(*machine.gpus[0].memory_bytes, 81559ULL << 20U);
}

TEST(Outputs, OfABadFileTheFolderKeepsTheRest) {
  const TempFolder folder;
  folder.write("a-rocm.txt", "=== ROCm System Management Interface ===\n       GPU0  GPU1\nGPU0   0   15\n");
  folder.write("failed.txt", "\tGPU0\tGPU1\tCPU Affinity\nFailed to run topology matrix\n");
  folder.write("lspci.txt", "01:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB]\n");
  const auto evidence = read_evidence(folder.path());
  ASSERT_TRUE(evidence) << evidence.status().message();
  EXPECT_EQ(evidence->machine.gpus.size(), 1U);
  const auto texts = texts_of(*evidence);
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_EQ(texts[1].state, ReadState::failed);
  EXPECT_EQ(texts[1].gave, "Failed to run topology matrix");
  EXPECT_EQ(texts[2].gave, "1 PCI device");
}

TEST(Outputs, APortThatOneSourceCallsDownIsDown) {
  const TempFolder folder;
  folder.write("devinfo.txt",
               "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tstate:\tPORT_ACTIVE (4)\n\t\t\tphys_state:\tLINK_UP (5)\n");
  folder.write("rdma.txt", "link mlx5_0/1 state DOWN physical_state DISABLED netdev eth0\n");
  const auto machine = load(folder.path());
  ASSERT_TRUE(machine) << machine.status().message();
  EXPECT_EQ(*machine->rdma.at(0).ports.at(0).state, "DOWN");
  EXPECT_EQ(*machine->rdma.at(0).ports.at(0).physical_state, "Disabled");
  EXPECT_TRUE(std::any_of(machine->notes.begin(), machine->notes.end(),
                          [](const Note& note) { return note.kind == NoteKind::conflict; }));
}

// ibdev2netdev prints the state of IP over InfiniBand, which nobody needs to have set up.
TEST(Outputs, IpOverInfinibandThatIsDownIsNoPortThatIsDown) {
  const TempFolder folder;
  folder.write("t.txt", "mlx5_0 port 1 ==> ibp26s0 (Down)\nmlx5_1 port 1 ==> ens1f0 (Down)\n");
  const auto machine = load(folder.path() + "/t.txt");
  ASSERT_TRUE(machine) << machine.status().message();
  EXPECT_FALSE(machine->rdma.at(0).ports.at(0).state);
  EXPECT_EQ(*machine->rdma.at(1).ports.at(0).state, "DOWN");
}

TEST(Outputs, AMatrixThatFailedSaysItsOwnWords) {
  const auto evidence = evidence_of("\tGPU0\tGPU1\tCPU Affinity\nFailed to run topology matrix\n", "topo.txt");
  ASSERT_FALSE(evidence);
  EXPECT_NE(evidence.status().message().find("Failed to run topology matrix"), std::string::npos)
      << evidence.status().message();
}

TEST(Outputs, GluedCellsOfAMatrixAreTakenApart) {
  const auto machine = read_topo_matrix(
      "\tGPU0\tGPU1\tmlx5_bond_0\tmlx5_bond_1\nGPU0\t X \tNV18NODENODE\nGPU1\tNV18\t X \tSYSSYS\n", "t");
  ASSERT_TRUE(machine) << machine.status().message();
  const auto n = machine->matrix.ends.size();
  EXPECT_EQ(machine->matrix.cells[1].links, 18U);
  EXPECT_EQ(machine->matrix.cells[3].kind, PathKind::node);
  EXPECT_EQ(machine->matrix.cells[n + 3].kind, PathKind::sys);
}

TEST(Outputs, NvidiaSmisLogAloneIsAMachine) {
  const TempFolder folder;
  folder.write("q.txt",
               "==============NVSMI LOG==============\n\nDriver Version                            : 550.90.07\n"
               "GPU 00000000:01:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
               "        GPU Link Info\n            PCIe Generation\n                Max                       : 5\n"
               "                Current                   : 5\n            Link Width\n"
               "                Max                       : 16x\n                Current                   : 8x\n"
               "    BAR1 Memory Usage\n        Total                             : 131072 MiB\n");
  const auto machine = load(folder.path() + "/q.txt");
  ASSERT_TRUE(machine) << machine.status().message();
  ASSERT_EQ(machine->gpus.size(), 1U);
  const auto& link = machine->pci.at(machine->gpus[0].pci.index).link;
  EXPECT_EQ(*link.width, 8U);
  EXPECT_EQ(*link.max_width, 16U);
  EXPECT_DOUBLE_EQ(*link.speed_gts, 32);
  EXPECT_EQ(*machine->gpus[0].bar1_bytes, 131072ULL << 20U);
  EXPECT_EQ(*machine->gpu_driver, "550.90.07");
}

TEST(Outputs, AmdSmiNamesGpusLinksAndWhatIsRefused) {
  const auto machine = machine_of(
      "GPU: 0\n    BDF: 0000:0c:00.0\n    UUID: 1\n\nGPU: 1\n    BDF: 0000:22:00.0\n    UUID: 2\n\n"
      "ACCESS TABLE:\n             0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 ENABLED      DISABLED\n"
      "0000:22:00.0 ENABLED      ENABLED\n\n"
      "HOPS TABLE:\n             0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 0            1\n0000:22:00.0 1            "
      "0\n\n"
      "LINK TYPE TABLE:\n             0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 SELF         XGMI\n"
      "0000:22:00.0 XGMI         SELF\n\n"
      "GPU: 1\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n    BUS:\n        BDF: 0000:22:00.0\n"
      "        MAX_PCIE_WIDTH: 16\n        MAX_PCIE_SPEED: 32 GT/s\n    NUMA:\n        NODE: 1\n");
  ASSERT_EQ(machine.gpus.size(), 2U);
  EXPECT_EQ(*machine.gpus[1].vendor, "AMD");
  EXPECT_EQ(*machine.gpus[1].model, "AMD Instinct MI300X");
  EXPECT_EQ(*machine.gpus[1].numa_node, 1U);
  EXPECT_EQ(*machine.pci[machine.gpus[1].pci.index].link.max_width, 16U);
  ASSERT_EQ(machine.links.size(), 1U);
  EXPECT_EQ(machine.links[0].kind, LinkKind::xgmi);
  ASSERT_EQ(machine.peers.size(), 2U);
  EXPECT_FALSE(*machine.peers[0].write);
  EXPECT_TRUE(*machine.peers[1].write);
}

TEST(Outputs, MetaxAndGaudiAreNamed) {
  const auto metax = machine_of(
      "=================== MetaX System Management Interface Log ===================\nAttached GPUs      : 2\n"
      "| MX-SMI 2.2.4                        Kernel Mode Driver Version: 2.15.9          |\n"
      "| 0           MetaX C550             | 0000:0f:00.0        | 0%                   |\n"
      "| 29C         53W / 450W             | 858/65536 MiB       | Available            |\n"
      "| 1           MetaX C550             | 0000:34:00.0        | 0%                   |\n"
      "        GPU0    GPU1\nGPU0    X       MX\nGPU1    MX      X\nLegend:\nX    = Self\n");
  ASSERT_EQ(metax.gpus.size(), 2U);
  EXPECT_EQ(*metax.gpus[1].model, "MetaX C550");
  EXPECT_EQ(metax.pci[metax.gpus[1].pci.index].bus_id.to_string(), "0000:34:00.0");
  const auto gaudi = machine_of(
      "| HL-SMI Version:                              hl-1.17.1-fw-51.5.0          |\n"
      "|   0  HL-225              N/A  | 0000:4d:00.0     N/A |                   0  |\n"
      "| N/A   31C   N/A    95W / 600W |    768MiB / 98304MiB |     0%           N/A |\n");
  ASSERT_EQ(gaudi.gpus.size(), 1U);
  EXPECT_EQ(*gaudi.gpus[0].vendor, "Habana");
  EXPECT_EQ(*gaudi.gpus[0].memory_bytes, 98304ULL << 20U);
}

TEST(Outputs, MlxlinkIsAboutTheDeviceOfItsCommand) {
  const std::string info = "Operational Info\n----------------\nState                              : ";
  const auto up =
      machine_of("$ mlxlink -d mlx5_3 -m\n" + info + "Active\nPhysical state    : LinkUp\nSpeed   : 200G\n");
  ASSERT_EQ(up.rdma.size(), 1U);
  EXPECT_EQ(up.rdma[0].name, "mlx5_3");
  EXPECT_DOUBLE_EQ(*up.rdma[0].ports.at(0).rate_gbps, 200);
  const auto down = machine_of("$ mlxlink -d mlx5_3\n" + info + "Polling\nPhysical state    : ETH_AN_FSM_ENABLE\n");
  EXPECT_EQ(*down.rdma.at(0).ports.at(0).state, "DOWN");
}

}  // namespace
}  // namespace fairway::topology
