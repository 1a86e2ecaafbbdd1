#include <algorithm>

#include <gtest/gtest.h>

#include "doctor/report.h"
#include "reading_support.h"

// What texts of the field say of links and ports: counters, rates, widths and modes, in every form that prints them.
namespace fairway::doctor::testing {
namespace {

TEST(DoctorLinkTexts, CountersOfAPortAreReadInEveryFormThatPrintsThem) {
  const std::string file = "/sys/class/infiniband/mlx5_0/ports/1/";
  for (const std::string& text :
       std::vector<std::string>{"link mlx5_0/1 rx_write_requests 8 out_of_sequence 45122 packet_seq_err 0\n",
                                "$ grep . /sys/class/infiniband/*/ports/*/hw_counters/*\n" + file +
                                    "hw_counters/lifespan:10\n" + file + "hw_counters/out_of_sequence:45122\n",
                                "==> " + file + "hw_counters/out_of_sequence <==\n45122\n\n==> " + file +
                                    "hw_counters/rnr_nak_retry_err <==\n0\n",
                                "root@n1:~# cat " + file + "hw_counters/out_of_sequence\n45122\n",
                                "cat " + file + "hw_counters/out_of_sequence\n45122\n"}) {
    const auto report = alone(text);
    EXPECT_TRUE(title_of(report, "port-errors").starts_with("mlx5_0: out_of_sequence is 45122")) << text;
    EXPECT_TRUE(report.verdict.whole) << text;
  }
  EXPECT_FALSE(has(alone("link mlx5_0/1 rx_write_requests 8 out_of_sequence 0\n"), "port-errors"));
  // Every port has some from when its link came up.
  EXPECT_FALSE(has(alone(file + "counters/port_rcv_errors:14\n"), "port-errors"));
}

TEST(DoctorLinkTexts, CountersThatAGrepChoseAreOfTheInterfaceOfItsCommand) {
  const std::string lines = "     rx_discards_phy: 5512201\n     tx_discards_phy: 0\n";
  for (const char* command : {"root@g1:~# ethtool -S ens2f0np0 | grep -i discard\n",
                              "$ sudo ethtool -S ens2f0np0 | grep disc\n", "ethtool -S ens2f0np0 | grep discard\n"})
    EXPECT_TRUE(title_of(alone(command + lines), "nic-discards").starts_with("ens2f0np0: rx_discards_phy is 5512201"))
        << command;
}

TEST(DoctorLinkTexts, FilesOfSysSayWhatTheirPathsName) {
  const std::string port = "/sys/class/infiniband/mlx5_1/ports/1/";
  const auto down = alone("$ cat " + port + "rate\n400 Gb/sec (4X NDR)\n$ cat " + port + "state\n1: DOWN\n$ cat " +
                          port + "phys_state\n2: Polling\n$ cat " + port + "link_layer\nInfiniBand\n");
  EXPECT_TRUE(title_of(down, "port-down").starts_with("mlx5_1: its port is DOWN | state DOWN, physical state Polling"));
  const auto link = alone(
      "grep . /sys/bus/pci/devices/0000:81:00.0/*\n/sys/bus/pci/devices/0000:81:00.0/class:0x030200\n"
      "/sys/bus/pci/devices/0000:81:00.0/vendor:0x10de\n"
      "/sys/bus/pci/devices/0000:81:00.0/current_link_width:8\n"
      "/sys/bus/pci/devices/0000:81:00.0/max_link_width:16\n");
  EXPECT_TRUE(has(link, "pcie-width")) << line_of(link);
  // Which of several files a line is of, a pattern does not say.
  const auto pattern = beside_matrix("speed.txt", "$ cat /sys/class/net/*/speed\n100000\n400000\n");
  EXPECT_EQ(text_named(pattern, "speed.txt").state, topology::ReadState::not_used);
  EXPECT_EQ(word(pattern.verdict), "unclear");
}

TEST(DoctorLinkTexts, RailsOfSeveralRatesAreNamedFromEverySource) {
  const auto ibstat = [](const char* name, const char* rate) {
    return std::string("CA '") + name +
           "'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: " + rate +
           "\n\t\tLink layer: InfiniBand\n";
  };
  const auto status = [](const char* name, const char* rate) {
    return std::string("Infiniband device '") + name +
           "' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t " + rate +
           "\n\tlink_layer:\t InfiniBand\n\n";
  };
  const auto devinfo = [](const char* name, const char* width, const char* speed) {
    return std::string("hca_id:\t") + name +
           "\n\ttransport:\t\t\tInfiniBand (0)\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n" +
           "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tlink_layer:\t\tInfiniBand\n\t\t\tactive_width:\t\t" + width +
           "\n\t\t\tactive_speed:\t\t" + speed + "\n\n";
  };
  const auto settings = [](const char* name, const char* speed) {
    return std::string("Settings for ") + name + ":\n\tSpeed: " + speed +
           "Mb/s\n\tDuplex: Full\n\tLink detected: yes\n";
  };
  const auto mlxlink = [](const char* name, const char* speed) {
    return std::string("$ mlxlink -d ") + name +
           "\nOperational Info\n----------------\nState   : Active\nPhysical state : LinkUp\nSpeed  : " + speed + "\n";
  };
  for (const std::string& text : std::vector<std::string>{
           ibstat("mlx5_0", "100") + ibstat("mlx5_1", "400"),
           status("mlx5_0", "100 Gb/sec (4X EDR)") + status("mlx5_1", "400 Gb/sec (4X NDR)"),
           devinfo("mlx5_0", "4X (2)", "25.0 Gbps (32)") + devinfo("mlx5_1", "4X (2)", "100.0 Gbps (128)"),
           mlxlink("mlx5_0", "100G") + mlxlink("mlx5_1", "400G"),
           settings("ens1", "100000") + settings("ens2", "400000"),
           "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1\n"
           "link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens2\n" +
               settings("ens1", "100000") + settings("ens2", "400000")}) {
    const auto report = alone(text);
    EXPECT_TRUE(title_of(report, "port-rate").starts_with("Rails of 2 rates: ")) << text << line_of(report);
  }
  EXPECT_FALSE(has(alone(ibstat("mlx5_0", "400") + ibstat("mlx5_1", "400")), "port-rate"));
  EXPECT_FALSE(has(alone(ibstat("mlx5_0", "400") + ibstat("mlx5_bond_0", "200")), "port-rate")) << "a leg's rate";
}

TEST(DoctorLinkTexts, LinksThatNoLineNamesAreNotesOfTheirOwn) {
  const std::string lines =
      "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
      "\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)\n";
  EXPECT_TRUE(title_of(alone("$ lspci -vv | grep -E 'LnkSta|LnkCap'\n" + lines), "pcie-width")
                  .starts_with("A PCIe link: it runs x8 of 16 at 16 of 32 GT/s"));
  EXPECT_TRUE(title_of(alone("lspci -vvs 81:00.0 | grep -E 'LnkSta|LnkCap'\n" + lines), "pcie-width")
                  .starts_with("The PCIe link of 0000:81:00.0: it runs x8 of 16"));
}

TEST(DoctorLinkTexts, ALinkBelowWhatBothEndsAdvertiseIsAWarning) {
  const auto ethtool = [](const char* partner, const char* duplex) {
    return std::string(
               "Settings for ens2f0np0:\n\tSupported link modes:   400000baseCR4/Full\n\t                        "
               "100000baseCR2/Full\n"
               "\tLink partner advertised link modes:  ") +
           partner + "\n\tSpeed: 100000Mb/s\n\tDuplex: " + duplex + "\n\tAuto-negotiation: on\n\tLink detected: yes\n";
  };
  EXPECT_TRUE(has(alone(ethtool("400000baseCR4/Full", "Full")), "port-rate", Level::warning));
  EXPECT_TRUE(has(alone(ethtool("100000baseCR2/Full", "Full")), "port-rate", Level::note));
  EXPECT_TRUE(has(alone(ethtool("Not reported", "Full")), "port-rate", Level::note));
  const auto half = alone(ethtool("Not reported", "Half"));
  EXPECT_TRUE(std::any_of(half.findings.begin(), half.findings.end(),
                          [](const Finding& one) { return one.title == "ens2f0np0: its link is half duplex"; }));
}

}  // namespace
}  // namespace fairway::doctor::testing
