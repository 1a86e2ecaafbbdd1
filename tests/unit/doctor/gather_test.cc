#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <linux/dcbnl.h>
#include <linux/devlink.h>
#include <linux/ethtool.h>
#include <unistd.h>

#include "doctor/cost.h"
#include "doctor/netlink.h"
#include "server.h"

namespace fairway::doctor::testing {
namespace {

TEST(DoctorGather, RegistersFromAConfigFile) {
  std::string bytes(4096, '\0');
  const auto put = [&](std::size_t at, unsigned value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
  };
  put(6, 0x10, 2);             // has capabilities
  put(0x34, 0x40, 1);          // the first at 0x40
  put(0x40, 0x6001, 2);        // power management, next at 0x60
  put(0x60, 0x0010, 2);        // PCI Express
  put(0x64, 0x0002, 4);        // DevCap: 512 bytes
  put(0x68, 0x5030, 2);        // DevCtl: MaxReadReq 4096, RlxdOrd, MaxPayload 256
  put(0x100, 0x1481000dU, 4);  // ACS, next at 0x148
  put(0x106, 0x001d, 2);
  put(0x148, 0x0001000fU, 4);  // ATS, the last
  put(0x14e, 0x8000, 2);
  Facts facts;
  read_config_space(bytes, "pci.x", "config", facts);
  EXPECT_EQ(facts.text("pci.x.max_read_request"), "4096");
  EXPECT_EQ(facts.text("pci.x.max_payload"), "256");
  EXPECT_EQ(facts.text("pci.x.max_payload_able"), "512");
  EXPECT_EQ(facts.text("pci.x.relaxed_ordering"), "1");
  EXPECT_EQ(facts.text("pci.x.acs"), "001d");
  EXPECT_EQ(facts.text("pci.x.ats"), "1");
  // Without root there are 64 bytes; loops and ends beyond the file are survived.
  Facts cut;
  read_config_space(std::string_view(bytes).substr(0, 64), "pci.x", "config", cut);
  EXPECT_EQ(cut.find("pci.x.acs"), nullptr);
  EXPECT_NE(cut.why_not("pci.x.acs").find("root"), std::string::npos);
  put(0x60, 0x6001, 2);
  put(0x148, 0x14810001U, 4);
  put(0x100, 0xfff10001U, 4);
  for (const std::size_t size : {65, 100, 255, 256, 260, 330, 4096}) {
    Facts any;
    read_config_space(std::string_view(bytes).substr(0, size), "pci.x", "config", any);
  }
}

TEST(DoctorGather, RegistersFromLspci) {
  Facts facts;
  EXPECT_TRUE(
      read_pasted("0000:1a:00.0 PCI bridge: A switch\n"
                  "\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00\n"
                  "\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0\n"
                  "\t\tDevCtl:\tCorrErr+ NonFatalErr+\n"
                  "\t\t\tRlxdOrd- ExtTag+ PhantFunc- AuxPwr- NoSnoop+\n"
                  "\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n"
                  "\tCapabilities: [148 v1] Access Control Services\n"
                  "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+\n"
                  "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
                  "0000:1b:00.0 Infiniband controller: A NIC\n"
                  "\tCapabilities: <access denied>\n",
                  "lspci.txt", {}, facts));
  EXPECT_EQ(facts.text("pci.0000:1a:00.0.acs"), "001d");
  EXPECT_EQ(facts.find("pci.0000:1a:00.0.acs")->where, "lspci.txt:9");
  EXPECT_EQ(facts.text("pci.0000:1a:00.0.relaxed_ordering"), "0");
  EXPECT_EQ(facts.text("pci.0000:1a:00.0.max_read_request"), "512");
  EXPECT_NE(facts.why_not("pci.0000:1b:00.0.acs").find("root"), std::string::npos);
}

TEST(DoctorGather, PastedOutputsByWhatTheyLookLike) {
  const auto server = healthy();
  Facts facts;
  const auto read = [&](std::string_view text, const char* name) {
    EXPECT_TRUE(read_pasted(text, name, server.now.machine, facts)) << name;
  };
  read("BOOT_IMAGE=/vmlinuz root=/dev/sda1 amd_iommu=pt\n", "cmdline.txt");
  read(
      "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         8388608    "
      "          8388608              bytes\n",
      "limits.txt");
  read("Module                  Size  Used by\nnvidia_peermem  16384  0\nib_core  500000  2 mlx5_ib,ib_uverbs\n",
       "lsmod.txt");
  read("[1.0] NVRM: Xid (PCI:0000:14:00): 79, pid=1, GPU has fallen off the bus.\n", "dmesg.txt");
  read(
      "Device #1:\n----------\n\nDevice:             0000:13:00.0\nConfigurations:      Next Boot\n         "
      "PCI_WR_ORDERING     force_relax(1)\n         MAX_ACC_OUT_READ    44\n",
      "mlxconfig.txt");
  read("PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   0   0   0\n",
       "mlnx_qos-eth0.txt");
  read("export NCCL_IB_GID_INDEX=3\nNCCL_DEBUG=INFO\n", "env.txt");
  EXPECT_EQ(facts.text("limit.memlock"), "8388608");
  EXPECT_EQ(facts.text("kernel.module.nvidia_peermem"), "loaded");
  EXPECT_EQ(facts.text("kernel.holders.ib_core"), "mlx5_ib ib_uverbs");
  EXPECT_NE(facts.find("kernel.xid.0000:14:00.0.79"), nullptr);
  EXPECT_EQ(facts.text("mlxconfig.0000:13:00.0.PCI_WR_ORDERING"), "1");
  EXPECT_EQ(facts.text("net.eth0.pfc"), "00010000");
  EXPECT_EQ(facts.text("env.NCCL_IB_GID_INDEX"), "3");
  EXPECT_FALSE(read_pasted("nothing of the kind\n", "readme.txt", server.now.machine, facts));
}

TEST(DoctorGather, NvidiaSmisLog) {
  auto server = healthy();
  Facts facts;
  EXPECT_TRUE(
      read_pasted("==============NVSMI LOG==============\n\nGPU 00000000:14:00.0\n    Persistence Mode                 "
                  "     : Disabled\n"
                  "    Fabric\n        State                             : In Progress\n"
                  "    Clocks Event Reasons\n        HW Slowdown                       : Active\n"
                  "    Remapped Rows\n        Pending                           : Yes\n        Remapping Failure "
                  "Occurred        : No\n",
                  "smi.txt", server.now.machine, facts));
  EXPECT_EQ(facts.text("gpu.0.persistence"), "disabled");
  EXPECT_EQ(facts.text("gpu.0.fabric_state"), "in progress");
  EXPECT_EQ(facts.text("gpu.0.throttle"), "hw_slowdown");
  EXPECT_EQ(facts.text("gpu.0.remap_pending"), "yes");
}

// Without bus ids on record the order of nvidia-smi's log is that of its matrix.
TEST(DoctorGather, NvidiaSmisLogBesideAMatrixWithoutBusIds) {
  topology::Machine machine;
  machine.gpus.resize(2);
  machine.gpus[1].ordinal = 1;
  Facts facts;
  EXPECT_TRUE(
      read_pasted("==============NVSMI LOG==============\n\nAttached GPUs                             : 2\n"
                  "GPU 00000000:14:00.0\n    Persistence Mode                      : Enabled\n"
                  "GPU 00000000:2C:00.0\n    Persistence Mode                      : Disabled\n",
                  "q.txt", machine, facts));
  EXPECT_EQ(facts.text("gpu.0.persistence"), "enabled");
  EXPECT_EQ(facts.text("gpu.1.persistence"), "disabled");
}

TEST(DoctorGather, ThisMachineIsReadWithoutRootAndSavedWhole) {
  const auto found = look_around({{"NCCL_IB_GID_INDEX", "3"}});
  ASSERT_TRUE(found) << found.status().message();
  EXPECT_NE(found->facts.find("kernel.cmdline"), nullptr) << found->facts.why_not("kernel.cmdline");
  EXPECT_NE(found->facts.find("limit.memlock"), nullptr) << found->facts.why_not("limit.memlock");
#ifdef FAIRWAY_HAVE_JSON
  const auto text = write_case(*found);
  ASSERT_TRUE(text) << text.status().message();
  ASSERT_TRUE(is_case(*text));
  const auto again = parse_case(*text, "saved");
  ASSERT_TRUE(again) << again.status().message();
  EXPECT_EQ(again->facts.all(), found->facts.all());
  EXPECT_EQ(again->facts.missed(), found->facts.missed());
  EXPECT_EQ(again->machine.pci.size(), found->machine.pci.size());
  // Cut anywhere it is an error with the file's name, never a crash.
  for (std::size_t size = 0; size < text->size(); size += text->size() / 37 + 1) {
    const auto cut = parse_case(std::string_view(*text).substr(0, size), "cut.json");
    ASSERT_FALSE(cut);
    EXPECT_NE(cut.status().message().find("cut.json"), std::string::npos);
  }
#endif
}

TEST(DoctorGather, AFolderOfOutputsGivesMachineAndFacts) {
  const auto folder = std::filesystem::temp_directory_path() / ("doctor_folder_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "lspci.txt")
      << "0000:13:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
         "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
         "\t\tDevCtl:\tCorrErr-\n\t\t\tRlxdOrd- ExtTag+\n";
  std::ofstream(folder / "cmdline") << "root=/dev/sda1 amd_iommu=pt\n";
  const auto found = read_case(folder.string());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(found) << found.status().message();
  EXPECT_EQ(found->facts.text("pci.0000:13:00.0.relaxed_ordering"), "0");
  EXPECT_EQ(found->facts.text("kernel.cmdline"), "root=/dev/sda1 amd_iommu=pt");
}

TEST(DoctorCompare, TheIntervalHoldsTheRatioAndKnowsChance) {
  const double a[] = {100, 101, 99, 100, 102};
  const double b[] = {195, 196, 194, 197, 195};
  const auto ratio = ratio_of(a, b);
  EXPECT_NEAR(ratio.middle, 1.95, 0.02);
  EXPECT_LT(ratio.low, ratio.middle);
  EXPECT_GT(ratio.high, ratio.middle);
  EXPECT_TRUE(is_faster(ratio, 1.15));
  const double noisy[] = {80, 140, 95, 120, 70};
  EXPECT_FALSE(is_faster(ratio_of(a, noisy), 1.0));
  const double two[] = {1, 2};
  EXPECT_FALSE(is_faster(ratio_of(two, two), 0.1)) << "two pairs prove nothing";
  EXPECT_FALSE(is_faster(ratio_of({}, {}), 0.1));
}

// An attribute of netlink: length, type, bytes, filled up to four.
std::string attribute(std::uint16_t type, const std::string& bytes) {
  const auto length = static_cast<std::uint16_t>(4 + bytes.size());
  std::string out;
  out += static_cast<char>(length & 0xffU);
  out += static_cast<char>(length >> 8U);
  out += static_cast<char>(type & 0xffU);
  out += static_cast<char>(type >> 8U);
  out += bytes;
  out.resize((out.size() + 3) / 4 * 4);
  return out;
}

std::string with_end(const char* text) {
  return std::string(text) + '\0';
}

TEST(DoctorGather, DevlinksParametersFromAMessage) {
  const auto value = [](const std::string& data) {
    return attribute(DEVLINK_ATTR_PARAM_VALUES_LIST, attribute(DEVLINK_ATTR_PARAM_VALUE, data));
  };
  const auto parameter = [&](const char* name, char kind, const std::string& data) {
    return attribute(DEVLINK_ATTR_PARAM, attribute(DEVLINK_ATTR_PARAM_NAME, with_end(name)) +
                                             attribute(DEVLINK_ATTR_PARAM_TYPE, std::string(1, kind)) + value(data));
  };
  const std::string head(4, '\0');
  const auto message = head + attribute(DEVLINK_ATTR_BUS_NAME, with_end("pci")) +
                       attribute(DEVLINK_ATTR_DEV_NAME, with_end("0000:1a:00.0")) +
                       parameter("enable_roce", 6, attribute(DEVLINK_ATTR_PARAM_VALUE_CMODE, std::string(1, '\1')));
  const auto read = parse_device_parameters(message);
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0], (DeviceParameter{"pci/0000:1a:00.0", "enable_roce", "false"}));
  const auto on =
      parse_device_parameters(head + parameter("enable_roce", 6, attribute(DEVLINK_ATTR_PARAM_VALUE_DATA, "")));
  ASSERT_EQ(on.size(), 1U);
  EXPECT_EQ(on[0].value, "true");
  const auto number = parse_device_parameters(
      head + parameter("x", 3, attribute(DEVLINK_ATTR_PARAM_VALUE_DATA, std::string("\7\0\0\0", 4))));
  ASSERT_EQ(number.size(), 1U);
  EXPECT_EQ(number[0].value, "7");
  // Cut anywhere, or with lengths that lie, nothing is read beyond the end.
  for (std::size_t size = 0; size < message.size(); ++size) parse_device_parameters(message.substr(0, size));
  EXPECT_TRUE(parse_device_parameters(message.substr(0, message.size() - 5)).empty()) << "a part of a parameter";
  auto lying = message;
  lying[4] = '\xff';
  lying[5] = '\xff';
  EXPECT_TRUE(parse_device_parameters(lying).empty());
}

TEST(DoctorGather, LinkModesAreReadByTheirBits) {
  const auto settings = [](std::uint32_t supported, std::uint32_t partner, std::int8_t masks = 4) {
    ethtool_link_settings head{};
    head.link_mode_masks_nwords = masks;
    head.duplex = DUPLEX_FULL;
    head.autoneg = AUTONEG_DISABLE;
    std::vector<std::uint32_t> words(12);
    words[2] = supported;    // bits 64 to 95
    words[8 + 1] = partner;  // bits 32 to 63 of the other end's
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) +
           std::string(reinterpret_cast<const char*>(words.data()), words.size() * 4);
  };
  const auto text = settings(1U << (87 - 64), 1U << (38 - 32));
  const auto read = parse_link_modes(text);
  EXPECT_EQ(read.supported_gbps, 400);
  EXPECT_EQ(read.partner_gbps, 100);
  EXPECT_FALSE(read.half_duplex);
  EXPECT_EQ(read.negotiates, false);
  EXPECT_EQ(parse_link_modes(settings(0, 0)).supported_gbps, 0);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_EQ(parse_link_modes(std::string_view(text).substr(0, size)).supported_gbps, 0) << size;
  EXPECT_EQ(parse_link_modes(settings(~0U, ~0U, -4)).supported_gbps, 0)
      << "the kernel's answer to a call with no words";
}

TEST(DoctorGather, PrioritiesThatPfcPausesFromAMessage) {
  const auto pfc = attribute(DCB_ATTR_IEEE_PFC, std::string("\x08\x28", 2) + std::string(140, '\0'));
  const auto message =
      std::string(4, '\0') + attribute(DCB_ATTR_IFNAME, with_end("eth0")) + attribute(DCB_ATTR_IEEE, pfc);
  const auto read = parse_lossless_priorities(message);
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(*read, (std::array<bool, 8>{false, false, false, true, false, true, false, false}));
  EXPECT_FALSE(parse_lossless_priorities(std::string(4, '\0') + attribute(DCB_ATTR_IFNAME, with_end("eth0"))));
  for (std::size_t size = 0; size < message.size(); ++size) (void)parse_lossless_priorities(message.substr(0, size));
}

TEST(DoctorGather, WhatTheKernelRefusesIsSaid) {
  for (const auto* interface : {"lo", "no-such-interface", "a-name-that-no-interface-can-have"}) {
    const auto statistics = ethtool_statistics(interface);
    ASSERT_FALSE(statistics) << interface;
    EXPECT_FALSE(statistics.status().message().empty());
  }
  EXPECT_FALSE(lossless_priorities("lo"));
  const auto parameters = device_parameters();
  if (!parameters) {
    EXPECT_FALSE(parameters.status().message().empty());
  }
}

TEST(DoctorGather, BenchOfCpusGivesTheBareCopysRate) {
  auto machine = healthy().now.machine;
  machine.numa_nodes.resize(1);
  const std::string rows =
      "path,from,to,operation,bytes,bytes_per_second,roof,roof_p50_us\n"
      "shm,shared,shared,write,4194304,13000000000,memcpy,262.144\n"
      "shm,shared,shared,write,65536,12000000000,memcpy,4.6\n"
      "tcp,shared,shared,write,4194304,900000000,socket loop,2097.152\n";
  const auto read = read_measurements(machine, rows, "b.csv", {});
  ASSERT_TRUE(read) << read.status().message();
  ASSERT_EQ(read->size(), 3U);
  ASSERT_TRUE((*read)[0].flow);
  EXPECT_EQ((*read)[0].flow->conditions.mover, predict::Mover::cpu);
  EXPECT_NEAR((*read)[0].gbps, 16 * 8, 0.01);
  EXPECT_FALSE((*read)[1].flow) << "in caches";
  EXPECT_EQ((*read)[2].flow->conditions.mover, predict::Mover::sockets);
  EXPECT_NEAR((*read)[2].gbps, 2 * 8, 0.01);
  EXPECT_FALSE(read_measurements(healthy().now.machine, rows, "b.csv", {})->front().flow) << "which node it ran on";
}

}  // namespace
}  // namespace fairway::doctor::testing
