// Promise 11, tells, when the machine's model is known: the expected rate of each link, routes that rank links by it,
// and an event when a link stays far below. Setup: two sockets with a NIC each, on simulated hosts whose NICs are as
// slow as a test wants.
#include <array>
#include <string>
#include <vector>

#include "cluster.h"
#include "predict/open.h"
#include "sys/process_memory.h"
#include "unit/predict/machines.h"

namespace fairway::promises {
namespace {

// nic1 is at node 0 and nic0 at node 1, so that only the model prefers the near NIC.
topology::Machine two_sockets() {
  topology::Machine machine = predict::test::server({.bridges_per_socket = 1});
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    machine.nics[i].name = "nic" + std::to_string(1 - i);
    if (machine.nics[i].rdma) machine.rdma[machine.nics[i].rdma.index].name = machine.nics[i].name;
  }
  return machine;
}

std::vector<NicDevice> two_nics(std::uint64_t bytes_per_second) {
  std::vector<NicDevice> nics{nic(bytes_per_second), nic(bytes_per_second)};
  for (NicDevice& each : nics) each.device.moved_by = transport::MovedBy::nic;
  return nics;
}

const ExplainedLink* line_of(const Explanation& explanation, const std::string& name) {
  for (const ExplainedLink& link : explanation.links)
    if (link.name.find(name) != std::string::npos) return &link;
  return nullptr;
}

// Transfers that many bytes by moving the same 64 KiB repeatedly.
Request pages(const Cluster::Node& from, const Cluster::Road& road, const std::vector<std::uint64_t>& index) {
  Request request;
  request.peer = road.peer;
  request.layout = Paged{from.region.id, road.memory.id, Cluster::kBytes, 1, 1, index, index};
  return request;
}

struct Machine : testing::Test {
  Machine() {
    cluster.set_machine([] { return predict::Model(two_sockets()); });
  }
  Cluster cluster;
};

TEST_F(Machine, ExplainHasARangeAndWhatBindsItForEachLink) {
  auto& a = cluster.add(two_nics(50'000'000'000));
  auto& b = cluster.add(two_nics(50'000'000'000));
  const auto road = cluster.connect(a, b);
  const auto told = a.engine->explain(road.peer);
  ASSERT_TRUE(told) << told.status().to_string();
  ASSERT_EQ(told->links.size(), 2u);
  for (const ExplainedLink& link : told->links) {
    EXPECT_GT(link.expected_low, 5e9) << link.name;
    EXPECT_GT(link.expected_high, link.expected_low) << link.name;
    EXPECT_LT(link.expected_high, 50e9) << link.name << ": no more than its 400 Gb/s port carries";
    EXPECT_FALSE(link.bound.empty()) << link.name;
  }
  const std::vector<std::uint64_t> index(8, 0);
  const auto plan = a.engine->explain(pages(a, road, index));
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->text().find("expected: "), std::string::npos) << plan->text();
  EXPECT_NE(plan->text().find(" to "), std::string::npos) << plan->text();
}

TEST_F(Machine, ATransferIsExplainedWithItsRangeThoughNobodyAskedBefore) {
  NicDevice copies = nic(5'000'000'000);
  copies.device.moved_by = transport::MovedBy::cpu;
  auto& a = cluster.add({copies});
  auto& b = cluster.add({copies});
  const auto road = cluster.connect(a, b);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64 * 1024));
  ASSERT_TRUE(id);
  EXPECT_TRUE(cluster.finish(a, id).status);
  const auto told = a.engine->explain(*id);
  ASSERT_TRUE(told) << told.status().to_string();
  ASSERT_EQ(told->links.size(), 1u);
  EXPECT_GT(told->links[0].expected_high, 0) << told->links[0].bound;
}

TEST_F(Machine, BytesGoByTheNicNearTheirMemory) {
  auto& a = cluster.add(two_nics(50'000'000'000));
  auto& b = cluster.add(two_nics(50'000'000'000));
  const int node = sys::numa_node_of(a.data(), Cluster::kBytes);
  if (node != 0 && node != 1) GTEST_SKIP() << "this kernel does not say on which NUMA node memory lies";
  const auto road = cluster.connect(a, b);
  cluster.run(50 * kMillisecond);
  const std::string near = "nic" + std::to_string(1 - node), far = "nic" + std::to_string(node);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, Cluster::kBytes));
  EXPECT_TRUE(cluster.finish(a, id).status);
  const auto past = a.engine->explain(*id);
  ASSERT_TRUE(past);
  EXPECT_TRUE(line_of(*past, near)->taken) << past->text();
  EXPECT_FALSE(line_of(*past, far)->taken) << past->text();
  EXPECT_GT(line_of(*past, near)->expected_low, line_of(*past, far)->expected_low);
}

TEST_F(Machine, ALinkFarBelowItsRateIsTold) {
  auto& a = cluster.add(two_nics(1'000'000'000));
  auto& b = cluster.add(two_nics(1'000'000'000));
  const auto road = cluster.connect(a, b);
  cluster.run(50 * kMillisecond);
  const std::vector<std::uint64_t> index(200, 0);
  std::array<PeerEvent, 16> events;
  (void)a.engine->poll_peer_events(events);
  std::vector<TransferId> ids;
  for (int i = 0; i < 40; ++i) {
    const auto id = a.engine->write(road.peer, pages(a, road, index).layout);
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  for (const TransferId id : ids) EXPECT_TRUE(cluster.finish(a, id).status);
  int slow = 0;
  const std::size_t count = a.engine->poll_peer_events(events);
  for (std::size_t i = 0; i < count; ++i) {
    if (events[i].kind != PeerEvent::Kind::link_slow) continue;
    ++slow;
    EXPECT_NE(events[i].link.find("nic"), std::string::npos);
    EXPECT_NE(events[i].detail.find("expected"), std::string::npos) << events[i].detail;
  }
  EXPECT_EQ(slow, 2) << "each link once";
}

TEST_F(Machine, WhatCannotBeLookedAtIsSaidAndNothingElseChanges) {
  cluster.set_machine(
      []() -> Result<predict::Model> { return Status(ErrorCode::not_found, "no such file: host.json"); });
  auto& a = cluster.add(two_nics(50'000'000'000));
  auto& b = cluster.add(two_nics(50'000'000'000));
  const auto road = cluster.connect(a, b);
  const auto told = a.engine->explain(road.peer);
  ASSERT_TRUE(told);
  EXPECT_NE(told->text().find("no such file: host.json"), std::string::npos) << told->text();
  EXPECT_TRUE(cluster.finish(a, a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64))).status);
}

}  // namespace
}  // namespace fairway::promises
