#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "doctor/nccl_settings.h"
#include "doctor/rules/common.h"
#include "server.h"

// What a job's variables mean on a machine.
namespace fairway::doctor::testing {
namespace {

using namespace topology;
constexpr auto kSource = Source::hand_written;

Level level_of(const Report& report, std::string_view rule) {
  const auto* finding = find(report, rule);
  EXPECT_NE(finding, nullptr) << rule;
  return finding == nullptr ? Level::broken : finding->level;
}

TEST(NcclSettings, LevelsByWordAndByNumberAreNcclsOwn) {
  EXPECT_EQ(nccl_level("LOC"), PathKind::self);
  EXPECT_EQ(nccl_level("PIX"), PathKind::pix);
  EXPECT_EQ(nccl_level("PXB"), PathKind::pxb);
  EXPECT_EQ(nccl_level("PHB"), PathKind::node) << "NCCL has no NODE: it is PHB there";
  EXPECT_EQ(nccl_level("SYS"), PathKind::sys);
  // levelsOldToNew: LOC, PIX, PXB, PHB, SYS, SYS
  EXPECT_EQ(nccl_level("0"), PathKind::self);
  EXPECT_EQ(nccl_level("1"), PathKind::pix);
  EXPECT_EQ(nccl_level("2"), PathKind::pxb);
  EXPECT_EQ(nccl_level("3"), PathKind::node);
  EXPECT_EQ(nccl_level("4"), PathKind::sys);
  EXPECT_EQ(nccl_level("5"), PathKind::sys);
  EXPECT_EQ(nccl_level("99"), PathKind::sys);
  EXPECT_EQ(nccl_level("NODE"), std::nullopt);
  EXPECT_EQ(nccl_level(""), std::nullopt);
}

TEST(NcclSettings, ANegativeGidIndexLeavesTheChoice) {
  EXPECT_EQ(nccl_gid_index("-1"), std::nullopt);
  EXPECT_EQ(nccl_gid_index("3"), 3U);
  EXPECT_EQ(nccl_gid_index("0x3"), 3U);
}

TEST(NcclSettings, NamesOfDevicesArePrefixesUnlessExact) {
  EXPECT_TRUE(nccl_devices("mlx5").allows("mlx5_10", 1));
  EXPECT_TRUE(nccl_devices("mlx5_1").allows("mlx5_10", 1));
  EXPECT_FALSE(nccl_devices("=mlx5_1").allows("mlx5_10", 1));
  EXPECT_FALSE(nccl_devices("^mlx5_1").allows("mlx5_10", 1));
  EXPECT_TRUE(nccl_devices("^=mlx5_1").allows("mlx5_10", 1));
  EXPECT_TRUE(nccl_devices("mlx5_0:2").allows("mlx5_0", 2));
  EXPECT_FALSE(nccl_devices("mlx5_0:2").allows("mlx5_0", 1));
  EXPECT_TRUE(nccl_devices("").allows("mlx5_0", 1));
}

TEST(NcclSettings, EveryRowNamesItsSource) {
  for (const auto& one : nccl_settings()) {
    EXPECT_TRUE(one.name.starts_with("NCCL_")) << one.name;
    EXPECT_FALSE(one.source.empty()) << one.name;
    EXPECT_FALSE(one.unset.empty()) << one.name;
  }
}

TEST(DoctorSettings, NcclsOwnDefaultsAreNoFault) {
  auto server = healthy();
  set(server, "env.NCCL_IB_GID_INDEX", "-1");
  set(server, "env.NCCL_IB_TC", "-1");
  set(server, "env.NCCL_CROSS_NIC", "2");
  EXPECT_TRUE(run(server).findings.empty());
  set(server, "env.NCCL_IB_GID_INDEX", "9");
  EXPECT_TRUE(has(run(server), "gid-unroutable", Level::broken));
}

TEST(DoctorSettings, APrefixDoesNotNameAPortThatIsDown) {
  auto server = healthy();
  set(server, "env.NCCL_IB_HCA", "mlx5");
  port(server, 7).state.set("DOWN", kSource);
  EXPECT_FALSE(has(run(server), "wrong-device"));
  port(server, 7).state.value = "ACTIVE";
  port(server, 7).rate_gbps.value = 1;
  EXPECT_TRUE(has(run(server), "wrong-device", Level::warning));
}

TEST(DoctorSettings, WhatAnExclusionLeavesIsChecked) {
  auto server = healthy();
  port(server, 7).rate_gbps.value = 1;
  set(server, "env.NCCL_IB_HCA", "^mlx5_7");
  EXPECT_FALSE(has(run(server), "wrong-device"));
  set(server, "env.NCCL_IB_HCA", "^mlx5_0");
  EXPECT_TRUE(has(run(server), "wrong-device"));
}

// GPUs and NICs of one socket, each below its own host bridge.
Server across_bridges() {
  auto server = healthy();
  auto& machine = server.now.machine;
  machine.links.clear();
  machine.nv_switches.clear();
  for (std::uint32_t nic = 0; nic < machine.nics.size(); ++nic) {
    auto& own = pci_of_nic(server, nic);
    auto bridge = machine.host_bridges[own.host_bridge.index];
    bridge.bus = static_cast<std::uint8_t>(0xe0 + nic);
    bridge.numa_node.set(nic < 4 ? 0 : 1, kSource);
    own.parent = {};
    own.host_bridge = Ref<HostBridge>(machine.host_bridges.size());
    own.numa_node.set(nic < 4 ? 0 : 1, kSource);
    machine.host_bridges.push_back(bridge);
  }
  return server;
}

TEST(DoctorSettings, NcclsDefaultLevelIsPxbAndSaidSo) {
  auto server = across_bridges();
  ASSERT_EQ(path_class(server.now.machine, {NodeKind::gpu, 0}, {NodeKind::nic, 0})->kind, PathKind::node);
  server.now.facts.forget("env.NCCL_NET_GDR_LEVEL");
  const auto report = run(server);
  EXPECT_EQ(level_of(report, "gdr-refused"), Level::note) << "NCCL's own choice";
  EXPECT_NE(find(report, "gdr-refused")->title.find("PXB"), std::string::npos);
  set(server, "env.NCCL_NET_GDR_LEVEL", "PHB");
  EXPECT_FALSE(has(run(server), "gdr-refused")) << "PHB includes NODE";
  set(server, "env.NCCL_NET_GDR_LEVEL", "4");
  EXPECT_FALSE(has(run(server), "gdr-refused")) << "4 is SYS";
  set(server, "env.NCCL_NET_GDR_LEVEL", "PXB");
  EXPECT_EQ(level_of(run(server), "gdr-refused"), Level::warning);
  // Without any variable nothing is known of the job.
  for (const auto& [name, seen] : server.now.facts.below("env")) server.now.facts.forget("env." + name);
  EXPECT_FALSE(has(run(server), "gdr-refused"));
}

TEST(DoctorSettings, GpusWithC2cReachTheNicsOfTheirCpu) {
  auto server = across_bridges();
  auto& machine = server.now.machine;
  server.now.facts.forget("env.NCCL_NET_GDR_LEVEL");
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    DeviceLink link;
    link.kind = LinkKind::c2c;
    link.a = {NodeKind::gpu, gpu};
    link.b = {NodeKind::numa_node, gpu / 4};
    link.count.set(1, kSource);
    link.gbs_per_link.set(450, kSource);
    machine.links.push_back(link);
  }
  EXPECT_FALSE(has(run(server), "gdr-refused"));
  set(server, "env.NCCL_NET_GDR_C2C", "0");
  EXPECT_TRUE(has(run(server), "gdr-refused"));
}

TEST(DoctorSettings, AJobsLogIsMeasuredNotSuspected) {
  auto server = healthy();
  set(server, "nccl.gdr_off", "2");
  set(server, "nccl.gdr_off.0.0", "GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 5 > 4)");
  const auto report = run(server);
  ASSERT_TRUE(has(report, "gdr-refused", Level::warning));
  EXPECT_EQ(find(report, "gdr-refused")->confidence, Confidence::measured);
}

TEST(DoctorSettings, ADeviceThatIsNotHereBesideOneThatIsOnlyANote) {
  auto server = healthy();
  set(server, "env.NCCL_IB_HCA", "=mlx5_0,mlx5_90");
  EXPECT_EQ(level_of(run(server), "setting-names-nothing"), Level::note);
  set(server, "env.UCX_NET_DEVICES", "mlx5_9:1");
  set(server, "env.NCCL_IB_HCA", "=mlx5_0");
  EXPECT_EQ(level_of(run(server), "setting-names-nothing"), Level::warning);
  set(server, "env.UCX_NET_DEVICES", "all");
  EXPECT_FALSE(has(run(server), "setting-names-nothing"));
}

TEST(DoctorSettings, RailsOfTwoNetworksAndCrossNicIsAWarning) {
  auto server = healthy();
  set(server, "env.NCCL_CROSS_NIC", "1");
  EXPECT_EQ(level_of(run(server), "cross-nic"), Level::note);
  port(server, 0).gids[3].address.set("::ffff:172.16.4.10", kSource);
  port(server, 1).gids[3].address.set("0000:0000:0000:0000:0000:ffff:ac18:040b", kSource);
  const auto report = run(server);
  EXPECT_EQ(level_of(report, "cross-nic"), Level::warning);
  const auto networks = rail_networks(server.now.machine);
  ASSERT_EQ(networks.size(), 2U);
  EXPECT_EQ(networks.begin()->first, "172.16.0.0/16");
  EXPECT_EQ(networks.rbegin()->first, "172.24.0.0/16");
}

// Four rails, the first three in one network.
Server of_one_network() {
  auto server = healthy();
  for (const std::uint32_t nic : {0U, 1U, 2U, 3U})
    port(server, nic).gids[3].address.set(fmt::format("::ffff:10.{}.0.{}", nic / 3, nic + 1), kSource);
  return server;
}

TEST(DoctorSettings, OfArpTheLargerOfTheInterfacesAndAllsCounts) {
  auto server = of_one_network();
  const auto with = [&](std::string_view interface, const char* ignore, const char* announce, const char* filter) {
    set(server, fmt::format("sysctl.net.ipv4.conf.{}.arp_ignore", interface), ignore);
    set(server, fmt::format("sysctl.net.ipv4.conf.{}.arp_announce", interface), announce);
    set(server, fmt::format("sysctl.net.ipv4.conf.{}.arp_filter", interface), filter);
  };
  EXPECT_EQ(find(run(server), "arp-answers")->devices.size(), 3U) << "the fourth is in a network of its own";
  with("eth0", "1", "2", "0");
  with("eth1", "0", "0", "1");  // its routes decide
  with("eth2", "2", "1", "0");  // it asks with any address
  const auto report = run(server);
  ASSERT_TRUE(has(report, "arp-answers", Level::note));
  ASSERT_EQ(find(report, "arp-answers")->evidence.size(), 1U);
  EXPECT_EQ(find(report, "arp-answers")->evidence[0].text, "mlx5_2 (eth2): arp_ignore 2, arp_announce 1, arp_filter 0");
  with("all", "0", "2", "0");
  EXPECT_FALSE(has(run(server), "arp-answers"));
}

TEST(DoctorSettings, OfArpWhatIsNotReadIsNotChecked) {
  const auto unchecked = [](const Server& server) {
    const auto report = run(server);
    return !has(report, "arp-answers") && std::any_of(report.not_looked.begin(), report.not_looked.end(),
                                                      [](const auto& one) { return one.rule == "arp-answers"; });
  };
  auto server = of_one_network();
  server.now.facts.forget("sysctl.net.ipv4.conf.eth0.arp_ignore");
  server.now.facts.forget("sysctl.net.ipv4.conf.eth1.arp_ignore");
  server.now.facts.forget("sysctl.net.ipv4.conf.eth2.arp_ignore");
  EXPECT_TRUE(unchecked(server)) << "all's 0 says nothing of theirs";
  set(server, "sysctl.net.ipv4.conf.all.arp_ignore", "1");
  set(server, "sysctl.net.ipv4.conf.all.arp_announce", "2");
  EXPECT_FALSE(unchecked(server)) << "all's is enough";
}

}  // namespace
}  // namespace fairway::doctor::testing
