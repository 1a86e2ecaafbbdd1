// Host memory's own rate, small and few messages, loops, staging, and what CPUs copy.
#include <algorithm>

#include <gtest/gtest.h>

#include "machines.h"

namespace fairway::predict {
namespace {

using namespace test;

constexpr Endpoint kHost{EndpointKind::host_memory, 0, {}};

Flow host_to(std::uint32_t nic, Conditions how = {}) {
  return {kHost, {EndpointKind::nic, nic, {}}, {}, how};
}

double sum_of(const Model& model, std::uint32_t nics) {
  std::vector<Flow> flows;
  for (std::uint32_t i = 0; i < nics; ++i) flows.push_back(host_to(i));
  const auto each = model.predict(flows);
  EXPECT_TRUE(each) << each.status().message();
  double sum = 0;
  for (const auto& one : *each) sum += one.gbs.expected;
  return sum;
}

// Family 6 model 0x8f is Sapphire Rapids: 8 channels of DDR5-4800 a socket.
TEST(HostMemory, OneNicIsNotHeldBackByItAndEightAre) {
  const Model model(server({.sockets = 1, .bridges_per_socket = 8}));
  const auto one = model.predict(host_to(0));
  ASSERT_TRUE(one);
  EXPECT_NE(one->bottleneck.find("port of"), std::string::npos) << one->bottleneck;
  EXPECT_NEAR(sum_of(model, 8), 307.2 * 0.33, 0.1);
  std::vector<Flow> flows;
  for (std::uint32_t i = 0; i < 8; ++i) flows.push_back(host_to(i));
  const auto all = model.predict(flows);
  ASSERT_TRUE(all);
  EXPECT_NE(all->front().bottleneck.find("memory channels of"), std::string::npos) << all->front().bottleneck;
}

// A folder of outputs may name a NIC and not its place: that is no path across sockets.
TEST(HostMemory, APathOfUnknownPlaceHasNoClass) {
  auto machine = server({.sockets = 2, .bridges_per_socket = 1});
  const Model known(machine);
  EXPECT_EQ(known.predict(host_to(0))->path.to_string(), "NODE");
  EXPECT_EQ(known.predict(host_to(1))->path.to_string(), "SYS");
  for (auto& device : machine.pci) device.numa_node.forget();
  for (auto& bridge : machine.host_bridges) bridge.numa_node.forget();
  for (auto& nic : machine.nics) nic.numa_node.forget();
  EXPECT_EQ(Model(machine).predict(host_to(1))->path.to_string(), "?");
}

TEST(HostMemory, NodesOfOneSocketDivideItsChannels) {
  auto machine = server({.sockets = 1, .bridges_per_socket = 8});
  auto second = machine.numa_nodes[0];
  second.os_index = 1;
  machine.numa_nodes.push_back(second);
  EXPECT_NEAR(sum_of(Model(machine), 8), 307.2 / 2 * 0.33, 0.1);
}

TEST(HostMemory, GpusPayNothingForIt) {
  const Model model(server({.sockets = 1, .bridges_per_socket = 8}));
  std::vector<Flow> flows;
  for (std::uint32_t i = 0; i < 8; ++i) flows.push_back(send(i, i));
  const auto each = model.predict(flows);
  ASSERT_TRUE(each);
  for (const auto& one : *each) EXPECT_NEAR(one.gbs.expected, 50 * payload_share(4096, false) * 0.995, 0.01);
}

TEST(Messages, SmallOnesAreBoundByTheirNumber) {
  const Model model(server({}));
  Conditions small;
  small.message_bytes = 256;
  const auto one = model.predict(send(0, 0, small));
  ASSERT_TRUE(one);
  EXPECT_NEAR(one->gbs.expected, 8 * 256e-3, 0.01);
  EXPECT_NE(one->bottleneck.find("messages"), std::string::npos) << one->bottleneck;
  small.qps = 4;
  EXPECT_NEAR(model.predict(send(0, 0, small))->gbs.expected, 4 * 8 * 256e-3, 0.01);
  Conditions large;
  large.message_bytes = 1U << 20U;
  EXPECT_EQ(model.predict(send(0, 0, large))->gbs.expected, model.predict(send(0, 0))->gbs.expected);
}

TEST(Messages, FewOnTheWayAreBoundByTheRoundTrip) {
  const Model model(server({}));
  Conditions how;
  how.message_bytes = 65536;
  double before = 0;
  for (const std::uint32_t outstanding : {1U, 2U, 8U, 128U}) {
    how.outstanding = outstanding;
    const auto p = model.predict(send(0, 0, how));
    ASSERT_TRUE(p);
    EXPECT_GT(p->gbs.expected, before);
    EXPECT_LE(p->gbs.low, p->gbs.expected);
    EXPECT_GE(p->gbs.high, p->gbs.expected);
    before = p->gbs.expected;
  }
  EXPECT_EQ(before, model.predict(send(0, 0))->gbs.expected) << "128 of 64 KiB fill the port";
  how.outstanding = 1;
  EXPECT_NEAR(model.predict(send(0, 0, how))->gbs.expected, 65536 / (14e3 + 65536 / 50.0) * 0.995, 0.01);
}

TEST(Loop, AFastNicDoesNotFillItsPortBothWaysAndASlowerOneDoes) {
  const Flow loop_400{kHost, kHost, 0U, {}};
  const auto fast = Model(server({})).predict(loop_400);
  const auto out = Model(server({})).predict(host_to(0));
  ASSERT_TRUE(fast && out);
  EXPECT_NEAR(fast->gbs.expected, 50 * payload_share(4096, false) * 0.85, 0.01);
  EXPECT_LT(fast->gbs.expected, out->gbs.expected);
  const Model slow(server({.nic_gbps = 200}));
  EXPECT_EQ(slow.predict(loop_400)->gbs.expected, slow.predict(host_to(0))->gbs.expected);
}

TEST(Staging, IsBelowItsSlowestStage) {
  const Model model(server({.bridges_per_socket = 1, .nvlinks = 0}));
  const auto routes = model.routes(send(0, 1));
  ASSERT_TRUE(routes);
  const auto staged = std::find_if(routes->begin(), routes->end(),
                                   [](const Route& route) { return route.name.starts_with("through the memory"); });
  ASSERT_NE(staged, routes->end());
  double slowest = 1e9;
  for (const auto& stage : staged->stages) slowest = std::min(slowest, model.predict(stage)->gbs.expected);
  EXPECT_NEAR(staged->prediction.gbs.expected, 0.67 * slowest, 0.02 * slowest);
}

TEST(CpuCopies, HaveAFigureOfTheirOwnAlsoWithinOneNode) {
  const Model model(server({}));
  Flow flow{kHost, kHost, {}, {}};
  EXPECT_FALSE(model.predict(flow)) << "no device copies within one memory";
  flow.conditions.mover = Mover::cpu;
  const auto copy = model.predict(flow);
  ASSERT_TRUE(copy) << copy.status().message();
  EXPECT_EQ(copy->gbs.expected, row_of(ConstantId::copy_core).range.expected);
  EXPECT_EQ(copy->constant, ConstantId::copy_core);
  EXPECT_NE(copy->bottleneck.find("in memory"), std::string::npos)
      << "what caches hold goes faster: " << copy->bottleneck;
  flow.conditions.mover = Mover::sockets;
  EXPECT_EQ(model.predict(flow)->constant, ConstantId::copy_sockets);
  // Far memory is no faster.
  flow.to.index = 1;
  flow.conditions.mover = Mover::cpu;
  EXPECT_LE(model.predict(flow)->gbs.expected, copy->gbs.expected);
}

TEST(Uplink, OneThatIsNotBelievedCarriesWhatItsFastestDeviceDoes) {
  auto machine = server({.sockets = 1, .bridges_per_socket = 1, .gpus_per_bridge = 4, .nic_gbps = 200});
  machine.virtual_machine.set("kvm", topology::Source::hand_written);
  for (auto& device : machine.pci) {
    if (device.kind == topology::PciKind::endpoint) continue;
    device.link.speed_gts = {2.5, topology::Source::hand_written};
    device.link.width = {1, topology::Source::hand_written};
  }
  // Four NICs of 24.4 GB/s below one bridge of Gen5 x16.
  const double all = sum_of(Model(machine), 4);
  EXPECT_LT(all, 63);
  EXPECT_GT(all, 50);
}

}  // namespace
}  // namespace fairway::predict
