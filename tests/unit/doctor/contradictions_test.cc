#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"
#include "topology/text.h"

// Texts that contradict each other, are of several hosts, or end too early: never "ok" without a word.
namespace fairway::doctor::testing {
namespace {

using topology::ReadState;

Report report_on(const std::string& text) {
  const Folder folder;
  return report_of(folder.write("paste.txt", text));
}

// What was read with this state; empty: nothing.
std::string told(const Report& report, ReadState state) {
  std::string out;
  for (const auto& one : report.read) {
    if (one.state == state) out += one.what + " | " + one.gave + "\n";
  }
  return out;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string ibstatus(const std::string& state, const std::string& rate) {
  return "$ ibstatus mlx5_0\nInfiniband device 'mlx5_0' port 1 status:\n\tstate:\t\t " + state +
         "\n\tphys state:\t 5: LinkUp\n\trate:\t\t " + rate + "\n\tlink_layer:\t InfiniBand\n";
}

std::string ibstat(const std::string& state, const std::string& rate) {
  return "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: " + state +
         "\n\t\tPhysical state: LinkUp\n\t\tRate: " + rate + "\n\t\tLink layer: InfiniBand\n";
}

TEST(DoctorContradictions, TheWorseOfTwoValuesOfOneFieldCountsAndBothAreNamed) {
  const auto fast = ibstatus("4: ACTIVE", "400 Gb/sec (4X NDR)");
  const auto slow = ibstatus("4: ACTIVE", "100 Gb/sec (4X EDR)");
  for (const std::string& text : std::vector<std::string>{fast + "after an hour:\n" + slow, slow + fast,
                                                          fast + "$ ibstat\n" + ibstat("Active", "100"),
                                                          ibstat("Active", "400") + ibstat("Active", "100")}) {
    const Folder folder;
    const auto path = folder.write("paste.txt", text);
    const auto report = report_of(path);
    EXPECT_EQ(word(report.verdict), "unclear") << text;
    EXPECT_EQ(exit_code(report.verdict), 4);
    const auto said = told(report, ReadState::contradicted);
    EXPECT_TRUE(has(said, "mlx5_0 port 1: rate (Gb/s) | ")) << said << text;
    EXPECT_TRUE(has(said, " says 400") && has(said, " says 100") && has(said, "the worse counts")) << said;
    EXPECT_TRUE(has(said, "paste.txt")) << said;
    const auto found = read_case(path);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->machine.rdma.at(0).ports.at(0).rate_gbps.value_or(0), 100);
  }
}

TEST(DoctorContradictions, EqualOutputsDoNotContradict) {
  const auto fast = ibstatus("4: ACTIVE", "400 Gb/sec (4X NDR)");
  for (const std::string& text : std::vector<std::string>{fast + fast, fast + "$ ibstat\n" + ibstat("Active", "400")}) {
    const auto report = report_on(text);
    EXPECT_EQ(told(report, ReadState::contradicted), "") << text;
    EXPECT_EQ(word(report.verdict), "ok") << line_of(report);
  }
}

TEST(DoctorContradictions, TheWorseOfTwoFactsIsWhatRulesSee) {
  const std::string free = "$ ulimit -l\nunlimited\n";
  const std::string little = "$ ulimit -l\n64\n";
  const std::string port = "$ ibdev2netdev\nmlx5_0 port 1 ==> ib0 (Up)\n";
  for (const std::string& text : std::vector<std::string>{port + free + little, port + little + free}) {
    const auto report = report_on(text);
    EXPECT_EQ(word(report.verdict), "broken") << text;
    EXPECT_TRUE(has(told(report, ReadState::contradicted), "limit.memlock | ")) << text;
  }
  const std::string gpu =
      "$ nvidia-smi --query-gpu=index,pci.bus_id,ecc.errors.uncorrected.volatile.total --format=csv\n"
      "index, pci.bus_id, ecc.errors.uncorrected.volatile.total\n0, 00000000:1B:00.0, ";
  for (const std::string& text : std::vector<std::string>{gpu + "0\n" + gpu + "99\n", gpu + "99\n" + gpu + "0\n"}) {
    const auto report = report_on(text);
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings.front().title, "GPU0: 99 uncorrected memory errors");
  }
}

TEST(DoctorContradictions, SeveralHostsInOneTextAreKeptApart) {
  const std::string up = ibstat("Active", "200");
  const std::string log = " kernel: NVRM: Xid (PCI:0000:17:00): 63, pid=1, name=x, Row Remapper: New row\n";
  for (const std::string& text : std::vector<std::string>{"root@n1:~# ibstat\n" + up + "root@n2:~# ibstat\n" + up,
                                                          "[u@n1 ~]$ ibstat\n" + up + "[u@n2 ~]$ ibstat\n" + up,
                                                          "n1$ ibstat\n" + up + "n2$ ibstat\n" + up,
                                                          "**n1**\n```\n" + up + "```\n**n2**\n```\n" + up + "```\n",
                                                          "Mar 11 09:00:00 n1" + log + "Mar 11 09:00:02 n2" + log}) {
    const auto report = report_on(text);
    EXPECT_TRUE(has(told(report, ReadState::read), "2 hosts: n1, n2")) << text;
    EXPECT_EQ(told(report, ReadState::contradicted), "") << text;
    EXPECT_TRUE(has(told(report, ReadState::read), "host n2 | ")) << text;
  }
  // One host under two names, a container on it, and headings that name devices.
  for (const std::string& text :
       std::vector<std::string>{"root@n1:~# ibstat\n" + up + "root@n1.example.org:/tmp# ibstat\n" + up,
                                "root@n1:~# ibstat\n" + up + "root@0123456789ab:/# ibstat\n" + up,
                                "## mlx5_0\n```\n" + up + "```\n## GPU1\n```\n" + up + "```\n",
                                "root@n1:~# ssh n2\nroot@n2:~# ibstat\n" + up}) {
    EXPECT_FALSE(has(told(report_on(text), ReadState::read), " hosts: ")) << text;
  }
}

// Each line with a name before it, as pdsh prints them.
std::string named(const std::string& name, const std::string& text, const std::string& between = ": ") {
  std::string out;
  for (const auto line : topology::text::lines(text)) out += name + between + std::string(line) + "\n";
  return out;
}

// The lines of two texts, one of each in turn.
std::string in_turn(const std::string& a, const std::string& b) {
  const auto left = topology::text::lines(a);
  const auto right = topology::text::lines(b);
  std::string out;
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    if (i < left.size()) out += std::string(left[i]) + "\n";
    if (i < right.size()) out += std::string(right[i]) + "\n";
  }
  return out;
}

TEST(DoctorContradictions, ToolsThatRunOnManyHostsNameTheHostOfEachLine) {
  const auto up = ibstat("Active", "400");
  const auto down = ibstat("Down", "400");
  const std::string rule(16, '-');
  for (const std::string& text : std::vector<std::string>{
           named("node1", up) + named("node2", down),                                        // pdsh
           in_turn(named("node1", up), named("node2", down)),                                // as lines arrive
           "$ pdsh -w node[1-2] ibstat\n" + named("node1", up) + named("node2", down),       //
           rule + "\nnode1\n" + rule + "\n" + up + rule + "\nnode2\n" + rule + "\n" + down,  // clush -b, dshbak
           "node1 | CHANGED | rc=0 >>\n" + up + "node2 | CHANGED | rc=0 >>\n" + down,        // ansible
           named("[pod/node1/c]", up, " ") + named("[pod/node2/c]", down, " "),              // kubectl logs --prefix
           "node1:\n" + named("   ", up, " ") + "node2:\n" + named("   ", down, " "),        // salt
           "$ for h in node1 node2; do echo == $h; ssh $h ibstat; done\n== node1\n" + up + "== node2\n" + down,
           named("node1 ", up, " | ") + named("node2 ", down, " | ")}) {  // docker compose
    const auto report = report_on(text);
    ASSERT_EQ(report.findings.size(), 1U) << text;
    EXPECT_EQ(report.findings.front().title, "node2: mlx5_0: its port is DOWN") << text;
    EXPECT_TRUE(report.verdict.whole) << text << line_of(report);
  }
  // The lines keep the numbers that they have in the text.
  const auto report = report_on(in_turn(named("node1", up), named("node2", down)));
  EXPECT_TRUE(has(text_named(report, "paste.txt:2-").where, "(node2)")) << told(report, ReadState::read);
  // A host that says only what failed is a host too.
  const auto lost = report_on(named("node1", up) +
                              "node2: Unable to determine the device handle for GPU 0000:43:00.0: GPU is lost.\n");
  ASSERT_FALSE(lost.findings.empty());
  EXPECT_EQ(lost.findings.front().title, "node2: 0000:43:00.0 does not answer: it is lost");
  // Names of devices, and of what no output follows, are no hosts.
  for (const std::string& text : std::vector<std::string>{up + named("mlx5_0", up), "step1: run it\n" + up,
                                                          "1: lo: <UP> mtu 65536\n2: e1: <UP> mtu 1500\n"}) {
    const auto found = report_on(text);
    EXPECT_FALSE(has(told(found, ReadState::read), "host")) << text;
  }
}

TEST(DoctorContradictions, OneDeviceOfTwoHostsIsTwoDevices) {
  const std::string xid = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n";
  const std::string sxid = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n";
  for (const auto& line : {xid, sxid}) {
    for (const std::string& text : std::vector<std::string>{
             "Mar 11 09:00:00 g3 kernel: " + line + "Mar 11 09:00:00 g4 kernel: " + line,
             "2026-03-11T09:00:00+0000 g3 kernel: " + line + "2026-03-11T09:00:01+0000 g4 kernel: " + line,
             "[  100.123456] g3 kernel: " + line + "[  100.123457] g4 kernel: " + line,
             "g3: [  100.1] " + line + "g4: [  100.2] " + line,
             "root@g3:~# dmesg | grep -i xid\n[  100.1] " + line + "root@g4:~# dmesg\n[  100.2] " + line}) {
      const auto report = report_on(text);
      ASSERT_EQ(report.findings.size(), 2U) << text;
      EXPECT_TRUE(report.findings[0].title.starts_with("g3: ")) << report.findings[0].title;
      EXPECT_TRUE(report.findings[1].title.starts_with("g4: ")) << report.findings[1].title;
    }
  }
}

TEST(DoctorContradictions, AnOutputWhoseEndIsMissingIsNamedAsCutOff) {
  const std::string gpu = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-1111-2222-3333-444444444444)\n";
  const std::string query =
      "==============NVSMI LOG==============\n\nDriver Version                            : 550.90.07\n\n"
      "Attached GPUs                             : 2\nGPU 00000000:1B:00.0\n"
      "    Product Name                          : NVIDIA H100 80GB HBM3\n";
  const std::string second =
      "GPU 00000000:2A:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n";
  for (const std::string& text : std::vector<std::string>{
           gpu + "\t Link 0: 26.562 GB/s\n\t Link 1: 26.5", gpu + "\t Link 0: 25 GB/s\n\t Link 1: 25 G",
           gpu + "\t Link 0: 25 GB/s\n\t Link 1: <inact", query, query + second + "    Remapped Rows\n        Pend",
           ibstat("Active", "400") + "\t\tSM lid:", "CA 'mlx5_1'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Acti"}) {
    const auto report = report_on(text);
    EXPECT_NE(told(report, ReadState::cut), "") << text;
    EXPECT_EQ(word(report.verdict), "unclear") << text << line_of(report);
  }
  for (const std::string& text :
       std::vector<std::string>{gpu + "\t Link 0: 26.562 GB/s\n", query + second, ibstat("Active", "400"),
                                "$ nvidia-smi -q -i 0\n" + query, ibstat("Active", "400") + "\t\tSM lid: 1"})
    EXPECT_EQ(told(report_on(text), ReadState::cut), "") << text;
}

TEST(DoctorContradictions, AHeadlineSaysThatThereAreNotes) {
  const auto report =
      report_on("Mar 11 09:00:00 n1 kernel: mlx5_core 0000:82:00.0: Link down\n" + ibstat("Active", "400"));
  ASSERT_FALSE(report.findings.empty());
  ASSERT_EQ(report.findings.front().level, Level::note);
  EXPECT_TRUE(has(line_of(report), "1 note: ")) << line_of(report);
  EXPECT_TRUE(has(line_of(report), report.findings.front().title)) << line_of(report);
  EXPECT_FALSE(has(line_of(report), "nothing wrong")) << line_of(report);
}

TEST(DoctorContradictions, AerThatIsEnabledIsNoError) {
  const auto report =
      report_on("[    1.0] pcieport 0000:00:01.0: AER: enabled with IRQ 25\n" + ibstat("Active", "400"));
  EXPECT_TRUE(report.findings.empty());
  const auto bad = report_on("[    1.0] pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0\n" +
                             ibstat("Active", "400"));
  EXPECT_FALSE(bad.findings.empty());
}

TEST(DoctorContradictions, LinesOfDevinfoWithoutNumbersOfPortsBelongToTheDeviceAbove) {
  const Folder folder;
  const auto found = read_case(folder.write("paste.txt",
                                            "hca_id:\trocep1s0\n\t\t\tstate:\t\t\tPORT_ACTIVE "
                                            "(4)\n\t\t\tactive_mtu:\t\t4096 (5)\n\t\t\tlink_layer:\t\tEthernet\n"
                                            "hca_id:\trocep2s0\n\t\t\tstate:\t\t\tPORT_DOWN "
                                            "(1)\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\t\tlink_layer:\t\tEthernet\n"));
  ASSERT_TRUE(found);
  ASSERT_EQ(found->machine.rdma.size(), 2U);
  for (const auto& device : found->machine.rdma) ASSERT_EQ(device.ports.size(), 1U) << device.name;
  EXPECT_EQ(found->machine.rdma[0].ports[0].state.value_or(""), "ACTIVE");
  EXPECT_EQ(found->machine.rdma[0].ports[0].active_mtu.value_or(0), 4096U);
  EXPECT_EQ(found->machine.rdma[1].ports[0].state.value_or(""), "DOWN");
}

TEST(DoctorContradictions, TextsOfOtherEncodingsAreReadAsWell) {
  const auto plain = "root@n1:~# ibstat\n" + ibstat("Active", "400") + "\n# \u00e9 \U0001f600\n";
  auto returns = plain;
  for (auto& c : returns) c = c == '\n' ? '\r' : c;
  std::string little = "\xff\xfe";
  std::string big = "\xfe\xff";
  for (const char c : "root@n1:~# ibstat\n" + ibstat("Active", "400")) {
    little += c, little += '\0';
    big += '\0', big += c;
  }
  for (const std::string& text :
       std::vector<std::string>{plain, returns, little, big, big + "\xd8", little + "\x3d\xd8"}) {
    const Folder folder;
    const auto found = read_case(folder.write("paste.txt", text));
    ASSERT_TRUE(found) << found.status().message();
    ASSERT_EQ(found->machine.rdma.size(), 1U);
    EXPECT_EQ(found->machine.rdma[0].ports.at(0).rate_gbps.value_or(0), 400);
  }
}

TEST(DoctorContradictions, TheLongFormOfIbdev2netdevIsRead) {
  const Folder folder;
  const auto found = read_case(folder.write(
      "paste.txt",
      "$ ibdev2netdev -v\n"
      "0000:18:00.0 mlx5_0 (MT4129 - MCX753) NVIDIA ConnectX-7 fw 28.39.1002 port 1 (ACTIVE) ==> ens1f0np0 (Up)\n"
      "0000:9a:00.0 mlx5_1 (MT4129 - MCX753) NVIDIA ConnectX-7 fw 28.39.1002 port 1 (DOWN  ) ==> ens2f0np0 (Down)\n"));
  ASSERT_TRUE(found);
  ASSERT_EQ(found->machine.rdma.size(), 2U);
  EXPECT_EQ(found->machine.rdma[0].ports.at(0).state.value_or(""), "ACTIVE");
  EXPECT_EQ(found->machine.rdma[1].name, "mlx5_1");
  EXPECT_EQ(found->machine.rdma[1].ports.at(0).state.value_or(""), "DOWN");
  EXPECT_EQ(found->machine.rdma[1].ports.at(0).interface.value_or(""), "ens2f0np0");
}

TEST(DoctorContradictions, AHealthyMatrixOfCopiesIsUnderstoodWhole) {
  std::string text = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n";
  for (const auto* heading :
       {"Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D",
        "P2P=Disabled Latency Matrix (us)\n   GPU", "P2P=Enabled Latency (P2P Writes) Matrix (us)\n   GPU"})
    text += std::string(heading) + "     0      1 \n     0 1522.26 275.22 \n     1 273.37 1541.09 \n\n";
  const auto report = report_on(text);
  EXPECT_EQ(told(report, ReadState::not_understood), "");
  ASSERT_EQ(report.read.size(), 1U);
  EXPECT_EQ(report.read[0].what, "p2pBandwidthLatencyTest");
}

TEST(DoctorContradictions, WordsOfOthersAreNotTakenForFailures) {
  const auto report = report_on("$ ibdiagnet -r\n-I- Discovering ... 42 nodes\n-E- Bad link: speed 2.5\n$ ibstat\n" +
                                ibstat("Active", "400"));
  EXPECT_EQ(told(report, ReadState::failed), "");
  EXPECT_NE(told(report, ReadState::not_understood), "");
  const auto list = report_on("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-1111-2222-3333-444444444444)\n");
  ASSERT_FALSE(list.read.empty());
  EXPECT_EQ(list.read.front().what, "nvidia-smi -L");
}

TEST(DoctorContradictions, WhatIsSlowerThanBothItsEndsIsWrongThoughItsCostIsUnknown) {
  const std::string gpu =
      "GPU 00000000:1B:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n    PCI\n"
      "        GPU Link Info\n            Link Width\n                Max               : 16x\n"
      "                Current           : ";
  const std::string log = "==============NVSMI LOG==============\n\n";
  const auto narrow = report_on(log + gpu + "8x\n");
  ASSERT_FALSE(narrow.findings.empty());
  EXPECT_EQ(narrow.findings.front().rule, "pcie-width");
  EXPECT_EQ(word(narrow.verdict), "degraded");
  EXPECT_EQ(cost_text(narrow.findings.front()), "unknown");
  EXPECT_TRUE(report_on(log + gpu + "16x\n").findings.empty());
  const std::string up = "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 15 state ACTIVE physical_state LINK_UP\n";
  const std::string down =
      "link mlx5_1/1 subnet_prefix fe80:0000:0000:0000 lid 65535 state DOWN physical_state POLLING\n";
  EXPECT_EQ(word(report_on("$ rdma link\n" + up + down).verdict), "degraded");
  // The second Ethernet port of a card is often unused.
  EXPECT_NE(
      word(report_on("$ ibdev2netdev\nmlx5_0 port 1 ==> ens1f0np0 (Up)\nmlx5_1 port 1 ==> ens1f1np1 (Down)\n").verdict),
      "degraded");
}

}  // namespace
}  // namespace fairway::doctor::testing
