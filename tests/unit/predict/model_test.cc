#include "predict/model.h"

#include <cmath>
#include <ctime>

#include <gtest/gtest.h>

#include "machines.h"
#include "predict/report.h"

namespace fairway::predict {
namespace {

using namespace test;
using topology::PathKind;

double expected(const Model& model, const Flow& flow) {
  const auto prediction = model.predict(flow);
  EXPECT_TRUE(prediction) << prediction.status().message();
  return prediction ? prediction->gbs.expected : 0;
}

TEST(Model, AGpuBesideItsNicReachesThePortsPayload) {
  const Model model(server({}));
  const auto p = model.predict(send(0, 0));
  ASSERT_TRUE(p);
  EXPECT_EQ(p->path.kind, PathKind::pix);
  EXPECT_NEAR(p->gbs.expected, 50 * payload_share(4096, false) * 0.995, 0.01);
  EXPECT_NE(p->sentence.find("port of mlx5_0"), std::string::npos) << p->sentence;
  EXPECT_LE(p->gbs.low, p->gbs.expected);
  EXPECT_GE(p->gbs.high, p->gbs.expected);
}

TEST(Model, SmallerPacketsLeaveLessPayload) {
  const Model model(server({}));
  Conditions how;
  how.mtu = 1024;
  EXPECT_NEAR(expected(model, send(0, 0, how)), 50 * 1024.0 / 1106 * 0.995, 0.01);
  Spec spec;
  spec.infiniband = true;
  EXPECT_GT(expected(Model(server(spec)), send(0, 0)), expected(model, send(0, 0)));
}

TEST(Model, ASlowLinkBindsBeforeThePort) {
  Spec spec;
  spec.gts = 8;  // Gen3 x16 under a 400G port
  const Model model(server(spec));
  const auto p = model.predict(send(0, 0));
  ASSERT_TRUE(p);
  EXPECT_NEAR(p->gbs.expected, topology::pcie_gbs(8, 16) * 0.87, 0.01);
  EXPECT_NE(p->bottleneck.find("PCIe link"), std::string::npos);
}

TEST(Model, FartherPathsAreNeverExpectedToBeFaster) {
  const Model model(server({}));
  const double pix = expected(model, send(0, 0));
  const double node = expected(model, send(0, 1));
  const double sys = expected(model, send(0, 2));
  EXPECT_GT(pix, node);
  EXPECT_GT(node, sys);
}

TEST(Model, OrderingDecidesWhatCrossesSockets) {
  Spec emerald;
  emerald.model = 0xcf;
  const Model model(server(emerald));
  Conditions relaxed;
  relaxed.ordering = Ordering::relaxed;
  Conditions strict;
  strict.ordering = Ordering::strict;
  EXPECT_NEAR(expected(model, send(0, 2, relaxed)), 40, 1);
  EXPECT_NEAR(expected(model, send(0, 2, strict)), 15.5, 0.1);
  const auto unknown = model.predict(send(0, 2));
  ASSERT_TRUE(unknown);
  EXPECT_TRUE(unknown->gbs.holds(16) && unknown->gbs.holds(40));
}

TEST(Model, StrictOrderingInAVirtualMachineBindsEvenBelowOneSwitch) {
  auto machine = server({});
  machine.virtual_machine = {"KVM", topology::Source::hand_written};
  const Model model(machine);
  Conditions strict;
  strict.ordering = Ordering::strict;
  EXPECT_NEAR(expected(model, receive(0, 0, strict)), 10.5, 0.01);
  strict.ordering = Ordering::relaxed;
  EXPECT_GT(expected(model, receive(0, 0, strict)), 45);
}

TEST(Model, OneQueuePairUsesOneLegOfABond) {
  Spec spec;
  spec.nic_gbps = 200;
  spec.legs = 2;
  const Model model(server(spec));
  const double leg = 25 * payload_share(4096, false) * 0.995;
  EXPECT_NEAR(expected(model, send(0, 0)), leg, 0.01);
  Conditions two;
  two.qps = 2;
  EXPECT_NEAR(expected(model, send(0, 0, two)), 2 * leg * 0.75, 0.02);
  two.round_robin = true;
  EXPECT_NEAR(expected(model, send(0, 0, two)), 2 * leg, 0.02);
  Flow on_leg = send(0, 0, two);
  on_leg.to.leg = 1;
  EXPECT_NEAR(expected(model, on_leg), leg, 0.01);
}

TEST(Model, ALoopCrossesTheGpusLinkBothWays) {
  Spec spec;
  spec.gts = 16;
  spec.nic_gbps = 200;
  const Model model(server(spec));
  // 24.4 GB/s of port against 31.5 x 0.87 in each direction: still the port.
  EXPECT_NEAR(expected(model, loop(0, 0)), expected(model, send(0, 0)), 0.01);
  // A loop and a send share the port's way out.
  const std::vector<Flow> both{loop(0, 0), send(0, 0)};
  const auto shared = model.predict(both);
  ASSERT_TRUE(shared);
  EXPECT_NEAR((*shared)[0].gbs.expected, expected(model, send(0, 0)) / 2, 0.01);
}

TEST(Model, FlowsThroughOneSwitchShareItsUplink) {
  Spec spec;
  spec.gpus_per_bridge = 2;
  spec.vendor = "AuthenticAMD";
  spec.family = 0x19;
  spec.model = 1;
  const Model model(server(spec));
  Conditions relaxed;
  relaxed.ordering = Ordering::relaxed;
  // GPU0 and GPU1 lie below one switch; NIC2 and NIC3 below the other one of the socket.
  const std::vector<Flow> flows{send(0, 2, relaxed), send(1, 3, relaxed)};
  const auto shared = model.predict(flows);
  ASSERT_TRUE(shared);
  EXPECT_NEAR((*shared)[0].gbs.expected, topology::pcie_gbs(32, 16) * 0.87 / 2, 0.01);
  EXPECT_NE((*shared)[0].sentence.find("shared by 2 flows"), std::string::npos) << (*shared)[0].sentence;
}

TEST(Model, NvlinkReachesTheSharesOfItsGeneration) {
  const Model model(server({}));
  EXPECT_NEAR(expected(model, gpu_to_gpu(0, 3)), 450 * 0.88, 0.1);
  Conditions kernel;
  kernel.by_kernel = true;
  EXPECT_NEAR(expected(model, gpu_to_gpu(0, 3, kernel)), 450 * 0.82, 0.1);
  // Three senders into one GPU share its way in.
  const std::vector<Flow> flows{gpu_to_gpu(0, 3), gpu_to_gpu(1, 3), gpu_to_gpu(2, 3)};
  const auto shared = model.predict(flows);
  ASSERT_TRUE(shared);
  EXPECT_NEAR((*shared)[0].gbs.expected, 450 * 0.88 / 3, 0.1);
}

TEST(Model, HostCopiesReachWhatCopyEnginesDo) {
  const Model model(server({}));
  EXPECT_NEAR(expected(model, from_host(0, 0)), 63.0 * 0.88, 0.1);
  Spec old;
  old.gts = 16;
  old.gpu = "NVIDIA A100-SXM4-80GB";
  EXPECT_NEAR(expected(Model(server(old)), from_host(0, 0)), 31.5 * 0.82, 0.1);
}

TEST(Model, AFarNicIsBetterReachedOverAGpuBesideIt) {
  const Model model(server({}));
  const auto routes = model.routes(send(0, 2));
  ASSERT_TRUE(routes);
  ASSERT_GE(routes->size(), 3U);
  EXPECT_EQ((*routes)[0].name, "over GPU2");
  EXPECT_GT((*routes)[0].prediction.gbs.expected, 45);
  EXPECT_TRUE(std::any_of(routes->begin(), routes->end(), [](const Route& r) { return r.name == "direct"; }));
  EXPECT_TRUE(std::any_of(routes->begin(), routes->end(),
                          [](const Route& r) { return r.name.starts_with("through the memory"); }));
}

TEST(Model, ANearNicIsReachedDirectly) {
  const Model model(server({}));
  const auto routes = model.routes(send(0, 0));
  ASSERT_TRUE(routes);
  EXPECT_EQ((*routes)[0].name, "direct");
}

TEST(Model, ARemoteEndTakesTheNearestNic) {
  const Model model(server({}));
  const auto flow = model.resolve({{EndpointKind::gpu, 2, {}}, {EndpointKind::remote, 0, {}}, {}, {}});
  ASSERT_TRUE(flow);
  EXPECT_EQ(flow->to.index, 2U);
}

TEST(Model, WhatCannotBeJoinedIsRefused) {
  const Model model(server({}));
  EXPECT_FALSE(model.predict(gpu_to_gpu(0, 0)));
  EXPECT_FALSE(model.predict(Flow{{EndpointKind::nic, 0, {}}, {EndpointKind::nic, 0, {}}, {}, {}}));
  EXPECT_FALSE(model.predict(Flow{{EndpointKind::remote, 0, {}}, {EndpointKind::remote, 0, {}}, {}, {}}));
  Conditions none;
  none.qps = 0;
  EXPECT_FALSE(model.predict(send(0, 0, none)));
}

TEST(Model, ABridgeThatAFileFoldedMayBeSeveral) {
  Spec spec;
  spec.gpus_per_bridge = 1;
  spec.bridges_per_socket = 1;
  auto machine = server(spec);
  // A second switch below the same bridge: PHB, as an NCCL file says of everything in a NUMA node.
  for (auto& device : machine.pci) {
    if (device.kind == topology::PciKind::switch_downstream) device.parent = {};
  }
  const auto plain = Model(machine).predict(send(0, 0));
  machine.host_bridges[0].folded = true;
  const auto folded = Model(machine).predict(send(0, 0));
  ASSERT_TRUE(plain && folded);
  EXPECT_EQ(folded->path.kind, PathKind::phb);
  EXPECT_LT(folded->gbs.expected, plain->gbs.expected);
}

TEST(Model, BetweenSocketsTheNicsMayBeFasterThanTheLink) {
  auto machine = server({});
  topology::SocketLink link;
  link.a = topology::Ref<topology::Package>(0);
  link.b = topology::Ref<topology::Package>(1);
  link.links = {1U, topology::Source::hand_written};
  link.gbs_per_link = {20.8, topology::Source::hand_written};
  machine.socket_links.push_back(link);
  const auto routes =
      Model(machine).routes({{EndpointKind::host_memory, 0, {}}, {EndpointKind::host_memory, 1, {}}, {}, {}});
  ASSERT_TRUE(routes);
  ASSERT_EQ(routes->size(), 2U);
  EXPECT_TRUE((*routes)[0].name.starts_with("over mlx5_")) << (*routes)[0].name;
  EXPECT_NEAR((*routes)[1].prediction.gbs.expected, 20.8 * 0.7, 0.01);
}

TEST(Model, AnEmptyMachineHasNothingToPredict) {
  const Model model(topology::Machine{});
  EXPECT_NE(text_of(model, rate_matrix(model, RowMode::send, {})).find("no GPU"), std::string::npos);
}

TEST(Model, ASoftwareDeviceIsSaidToBeOneAndNeedsNoSocket) {
  topology::Machine machine;
  machine.packages.emplace_back();
  machine.numa_nodes.emplace_back().package = topology::Ref<topology::Package>(std::size_t{0});
  auto& rxe = machine.rdma.emplace_back();
  rxe.name = "rxe0";
  rxe.software.set(true, topology::Source::sysfs);
  rxe.ports.emplace_back().rate_gbps.set(10, topology::Source::sysfs);
  topology::complete(machine);
  const Model model(machine);
  Flow flow;
  flow.from = *parse_endpoint(machine, "numa0");
  flow.to = *parse_endpoint(machine, "rxe0");
  const auto p = model.predict(flow);
  ASSERT_TRUE(p) << p.status().to_string();
  EXPECT_EQ(p->path.to_string(), "NODE");
  EXPECT_TRUE(std::any_of(p->notes.begin(), p->notes.end(),
                          [](const std::string& note) { return note.find("is software") != std::string::npos; }));
}

TEST(Model, ABridgeThatHypervisorsInventIsNotBelieved) {
  auto machine = server({});
  machine.virtual_machine = {"KVM", topology::Source::hand_written};
  for (auto& device : machine.pci) {
    if (device.kind != topology::PciKind::endpoint) {
      device.link.speed_gts = {2.5, topology::Source::hand_written};
      device.link.width = {1, topology::Source::hand_written};
    }
  }
  Conditions relaxed;
  relaxed.ordering = Ordering::relaxed;
  const auto p = Model(machine).predict(send(0, 1, relaxed));
  ASSERT_TRUE(p);
  EXPECT_GT(p->gbs.expected, 20);
  EXPECT_TRUE(std::any_of(p->notes.begin(), p->notes.end(),
                          [](const std::string& note) { return note.find(": ignored") != std::string::npos; }));
}

TEST(Model, OldGpusAreReadSlowlyThroughARootComplexAndWrittenFast) {
  Spec spec;
  spec.gts = 8;
  spec.gpu = "Tesla V100-PCIE-32GB";
  spec.vendor = "AuthenticAMD";
  spec.family = 0x17;
  spec.model = 0x31;
  spec.nic_gbps = 200;
  const Model model(server(spec));
  EXPECT_NEAR(expected(model, send(0, 1)), 6.1, 0.01);
  EXPECT_GT(expected(model, receive(1, 0)), 13);
}

// A hundred and twenty-eight of each, alone and all at once.
TEST(Model, AMatrixOf128By128TakesLessThanTwoSeconds) {
  Spec spec;
  spec.sockets = 8;
  spec.bridges_per_socket = 8;
  spec.gpus_per_bridge = 2;
  const Model model(server(spec));
  ASSERT_EQ(model.machine().gpus.size(), 128U);
  const auto start = std::clock();
  const auto matrix = rate_matrix(model, RowMode::send, {});
  const auto middle = std::clock();
  std::vector<Flow> flows;
  for (std::uint32_t g = 0; g < 128; ++g) {
    for (std::uint32_t n = 0; n < 128; ++n) flows.push_back(send(g, n));
  }
  const auto together = model.predict(flows);
  const auto end = std::clock();
  ASSERT_TRUE(together);
  EXPECT_EQ(matrix.cells.size(), 128U * 128U);
  double into_nic = 0;
  for (std::uint32_t g = 0; g < 128; ++g) into_nic += (*together)[g * 128].gbs.expected;
  EXPECT_LE(into_nic, 50);
  // Of this process alone, so that a busy machine does not fail it.
  const auto seconds = [](std::clock_t a, std::clock_t b) { return static_cast<double>(b - a) / CLOCKS_PER_SEC; };
  RecordProperty("alone_s", std::to_string(seconds(start, middle)));
  RecordProperty("together_s", std::to_string(seconds(middle, end)));
#if defined(NDEBUG) || defined(__OPTIMIZE__)
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds(start, middle), 2);
  EXPECT_LT(seconds(middle, end), 2);
#endif
#endif
}

}  // namespace
}  // namespace fairway::predict
