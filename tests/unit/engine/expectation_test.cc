#include "engine/expectation.h"

#include <gtest/gtest.h>

#include "unit/predict/machines.h"

namespace fairway::engine {
namespace {

using predict::test::server;
using predict::test::Spec;
using transport::MemoryPlace;

struct Sockets : testing::Test {
  // Two sockets, each with a GPU and a NIC below one switch.
  Expectation machine{predict::Model(server({.bridges_per_socket = 1}))};
  [[nodiscard]] std::string nic(std::size_t i) const {
    return server({.bridges_per_socket = 1}).nics[i].name + "/1";  // with its port
  }
};

TEST_F(Sockets, PlacesAreGpusByPciAddressAndMemoryByNode) {
  const topology::Machine known = server({.bridges_per_socket = 1});
  ASSERT_EQ(known.gpus.size(), 2u);
  EXPECT_EQ(machine.places(), 5u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string bus_id = known.pci[known.gpus[i].pci.index].bus_id.to_string();
    EXPECT_EQ(machine.place_of({MemoryKind::device, bus_id}, -1), 1 + i) << bus_id;
    EXPECT_EQ(machine.place_of({MemoryKind::host, {}}, static_cast<int>(i)), 3 + i);
  }
  EXPECT_EQ(machine.place_of({MemoryKind::device, "0000:ff:1f.0"}, -1), kNoPlace);
  EXPECT_EQ(machine.place_of({MemoryKind::device, "rubbish"}, -1), kNoPlace);
  EXPECT_EQ(machine.place_of({MemoryKind::host, {}}, -1), kAnyNode);
  EXPECT_EQ(machine.place_of({MemoryKind::host, {}}, 7), kAnyNode);
}

TEST_F(Sockets, TheNicBesideAGpuIsExpectedToBeFasterThanTheOneAcrossSockets) {
  for (const bool outwards : {true, false}) {
    const auto near = machine.through(nic(0), 1, outwards);
    const auto far = machine.through(nic(1), 1, outwards);
    ASSERT_TRUE(near && far);
    EXPECT_GT(near->gbs.expected, far->gbs.expected);
    EXPECT_GT(near->gbs.low, 0);
    EXPECT_FALSE(near->bottleneck.empty());
  }
}

TEST_F(Sockets, ADomainOfLibfabricIsTheNicThatItIsNamedAfter) {
  const std::string name = server({.bridges_per_socket = 1}).nics[1].name;
  for (const std::string& device : {"efa/" + name + "-rdm", "verbs;ofi_rxm/" + name}) {
    const auto by_domain = machine.through(device, 1, true), by_port = machine.through(nic(1), 1, true);
    ASSERT_TRUE(by_domain && by_port) << device;
    EXPECT_EQ(by_domain->gbs.expected, by_port->gbs.expected);
  }
  EXPECT_FALSE(machine.through("efa/rdmap77s0-rdm", 1, true));
}

TEST_F(Sockets, OfUnknownMemoryTheRangeHoldsThatOfEachNode) {
  const auto any = machine.through(nic(0), kAnyNode, true);
  ASSERT_TRUE(any);
  for (const Place place : {Place{3}, Place{4}}) {
    const auto one = machine.through(nic(0), place, true);
    ASSERT_TRUE(one);
    EXPECT_LE(any->gbs.low, one->gbs.low);
    EXPECT_GE(any->gbs.high, one->gbs.high);
  }
}

TEST_F(Sockets, WhatTheModelDoesNotKnowHasNoFigure) {
  EXPECT_FALSE(machine.through("mlx5_77/1", 1, true));
  EXPECT_FALSE(machine.between(kNoPlace, 1, false));
  EXPECT_FALSE(machine.through(nic(0), kNoPlace, true));
  EXPECT_FALSE(machine.between(kAnyNode, 3, false));
  EXPECT_FALSE(machine.between(3, 4, false)) << "memory to memory: CPUs";
  EXPECT_FALSE(machine.copied(1, 3, predict::Mover::cpu)) << "no CPU reads a GPU's memory";
  EXPECT_FALSE(machine.between(1, 1, false)) << "within one GPU";
  EXPECT_FALSE(machine.between(1, 99, false));
}

TEST_F(Sockets, HostMemoryIsCopiedByACoreOrBySockets) {
  const auto core = machine.copied(3, 3, predict::Mover::cpu);
  const auto sockets = machine.copied(3, 3, predict::Mover::sockets);
  const auto any = machine.copied(kAnyNode, kAnyNode, predict::Mover::cpu);
  ASSERT_TRUE(core && sockets && any);
  EXPECT_GT(core->gbs.low, 0);
  EXPECT_GT(core->gbs.expected, sockets->gbs.expected);
  EXPECT_LE(any->gbs.low, core->gbs.low);
  EXPECT_GE(any->gbs.high, core->gbs.high);
}

TEST_F(Sockets, GpusAreExpectedToReachEachOtherByNvlinkAndHostsByPcie) {
  const auto copied = machine.between(1, 2, false);
  const auto by_kernel = machine.between(1, 2, true);
  const auto host = machine.between(1, 3, false);
  ASSERT_TRUE(copied && by_kernel && host);
  EXPECT_NE(copied->bottleneck.find("NVLink"), std::string::npos) << copied->bottleneck;
  EXPECT_GT(copied->gbs.expected, by_kernel->gbs.expected);
  EXPECT_LT(host->gbs.high, 64) << "PCIe Gen5 x16";
  const auto any = machine.between(kAnyNode, 1, false);
  ASSERT_TRUE(any) << "host memory of a node that is not known";
  EXPECT_LE(any->gbs.low, host->gbs.low);
}

}  // namespace
}  // namespace fairway::engine
