// Promise 11, tells: explain() reports the route a transfer takes or took, why other links were not used, the expected
// rate and the measured one. Counters per link are on by default. The library neither prints nor ends the process
// (symbols.py checks that). Cases: every reason for which a link is not used; plans against what then happened;
// counters against what was requested.
#include <array>
#include <vector>

#include "cluster.h"
#include "nodes.h"
#include "relay.h"

namespace fairway::promises {
namespace {

const ExplainedLink* line(const Explanation& explanation, const std::string& name) {
  for (const ExplainedLink& link : explanation.links)
    if (link.name.find(name) != std::string::npos) return &link;
  return nullptr;
}

Request request_of(Operation operation, PeerId peer, const Extent& extent) {
  Request request;
  request.operation = operation;
  request.peer = peer;
  request.layout = extent;
  return request;
}

TEST(Tells, ThePlanNamesTheLinksTheirSharesAndWhyTheOthersAreLeft) {
  Cluster cluster;
  NicDevice no_read = nic(1'000'000'000);
  no_read.device.capabilities.operations = mask(transport::Op::write, transport::Op::message);
  const std::vector<NicDevice> nics{nic(3'000'000'000), no_read, nic(100'000'000)};
  auto& a = cluster.add(nics);
  auto& b = cluster.add(nics);
  const auto road = cluster.connect(a, b);
  cluster.run(50 * kMillisecond);  // all links proven
  const std::vector<std::uint64_t> index(64, 0);
  Request large;
  large.peer = road.peer;
  large.layout = Paged{a.region.id, road.memory.id, Cluster::kBytes, 1, 1, index, index};
  const auto plan = a.engine->explain(large);
  ASSERT_TRUE(plan) << plan.status().to_string();
  EXPECT_EQ(plan->state, "planned");
  EXPECT_NE(plan->peer.find("n1"), std::string::npos);
  ASSERT_NE(line(*plan, "nic0"), nullptr);
  EXPECT_TRUE(line(*plan, "nic0")->taken);
  EXPECT_NEAR(line(*plan, "nic0")->share, 0.75, 0.01);
  EXPECT_NEAR(line(*plan, "nic1")->share, 0.25, 0.01);
  EXPECT_FALSE(line(*plan, "nic2")->taken);
  EXPECT_NE(line(*plan, "nic2")->reason, "");
  EXPECT_EQ(line(*plan, "nic0")->expected_high, 3e9);
  const auto id = a.engine->write(road.peer, large.layout);
  EXPECT_TRUE(cluster.finish(a, id).status);
  const auto past = a.engine->explain(*id);
  ASSERT_TRUE(past);
  EXPECT_EQ(past->state, "ok");
  EXPECT_EQ(past->bytes_done, 64 * Cluster::kBytes);
  EXPECT_GT(past->reached, 0);
  for (const char* name : {"nic0", "nic1", "nic2"})
    EXPECT_EQ(line(*past, name)->taken, line(*plan, name)->taken) << name;
  large.operation = Operation::read;
  const auto read = a.engine->explain(large);
  ASSERT_TRUE(read);
  EXPECT_FALSE(line(*read, "nic1")->taken);
  EXPECT_NE(line(*read, "nic1")->reason, "");
  // What a transfer used is told after its peer has gone, too.
  ASSERT_TRUE(a.engine->disconnect(road.peer));
  cluster.run(10 * kSecond);
  const auto later = a.engine->explain(*id);
  ASSERT_TRUE(later);
  EXPECT_EQ(later->links.size(), 2u) << later->text();
  for (const char* name : {"nic0", "nic1"}) {
    ASSERT_NE(line(*later, name), nullptr) << later->text();
    EXPECT_EQ(line(*later, name)->bound, "its peer is gone");
  }
}

TEST(Tells, AnEmulatedOperationSaysSo) {
  Cluster cluster;
  auto& a = cluster.add({message_nic()});
  auto& b = cluster.add({message_nic()});
  const auto road = cluster.connect(a, b);
  const auto plan = a.engine->explain(request_of(Operation::read, road.peer, Cluster::extent(a, road, 0, 0, 64)));
  ASSERT_TRUE(plan);
  EXPECT_TRUE(line(*plan, "nic0")->taken);
  EXPECT_NE(line(*plan, "nic0")->reason.find("messages"), std::string::npos);
  ASSERT_FALSE(plan->notes.empty());
  EXPECT_NE(plan->text().find("copy"), std::string::npos) << plan->text();
  const auto id = a.engine->read(road.peer, Cluster::extent(a, road, 0, 0, 64));
  EXPECT_TRUE(cluster.finish(a, id).status);
  EXPECT_NE(a.engine->explain(*id)->text().find("emulated: no link has this operation"), std::string::npos);
}

TEST(Tells, ABrokenLinkSaysWhyAndItsTransfersSayWhatMoved) {
  Cluster cluster;
  NicDevice device = nic(200'000'000);
  device.device.capabilities.max_slice_bytes = 1024;
  auto& a = cluster.add({device, device});
  auto& b = cluster.add({device, device});
  const auto road = cluster.connect(a, b);
  cluster.run(50 * kMillisecond);
  std::array<PeerEvent, 16> events;
  (void)a.engine->poll_peer_events(events);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 60'000));
  cluster.run(100 * kMicrosecond);
  cluster.fabric().break_device(*a.host, 0, 10 * kSecond);
  EXPECT_TRUE(cluster.finish(a, id).status);
  const auto past = a.engine->explain(*id);
  ASSERT_TRUE(past);
  EXPECT_GT(past->retried_slices, 0u);
  EXPECT_NE(past->text().find("moved to another link"), std::string::npos) << past->text();
  const auto plan = a.engine->explain(request_of(Operation::write, road.peer, Cluster::extent(a, road, 0, 0, 64)));
  EXPECT_FALSE(line(*plan, "nic0")->taken);
  EXPECT_NE(line(*plan, "nic0")->reason.find("down"), std::string::npos) << line(*plan, "nic0")->reason;
  const std::size_t count = a.engine->poll_peer_events(events);
  bool told = false;
  for (std::size_t i = 0; i < count; ++i)
    told |= events[i].kind == PeerEvent::Kind::link_down && events[i].link.find("nic0") != std::string::npos &&
            !events[i].reason.message().empty();
  EXPECT_TRUE(told);
  for (const LinkMetrics& link : a.engine->metrics().links)
    if (link.name.find("nic0") != std::string::npos) {
      EXPECT_FALSE(link.up);
      EXPECT_EQ(link.failures, 1u);
      EXPECT_GT(link.retries, 0u);
    }
}

TEST(Tells, ATransportThatReachesNobodySaysWhy) {
  EngineOptions left;
  left.loopback = make_loopback();
  left.transports = {"loopback"};
  EngineOptions right = left;
  right.loopback = make_loopback();  // another loopback world
  Node near_node(left, 4096), far_node(right, 4096);
  const auto peer = near_node.engine().connect(far_node.engine().address(), kSoon);
  EXPECT_EQ(peer.status().code(), ErrorCode::unsupported) << peer.status().to_string();
  EXPECT_NE(peer.status().message().find("loopback"), std::string::npos) << peer.status().to_string();
  EngineOptions sockets;
  sockets.transports = {"tcp"};
  Node without(sockets, 4096);
  const auto nothing = without.engine().connect(far_node.engine().address(), kSoon);
  EXPECT_EQ(nothing.status().code(), ErrorCode::unsupported) << nothing.status().to_string();
}

TEST(Tells, AFullPeerTableSaysSo) {
  const auto loopback = make_loopback();
  EngineOptions options = options_of(loopback, "hub");
  options.max_peers = 1;
  Node hub(options, 4096), first(options_of(loopback, "first"), 4096), second(options_of(loopback, "second"), 4096);
  ASSERT_TRUE(hub.engine().connect(first.engine().address(), kSoon));
  const auto refused = hub.engine().connect(second.engine().address(), kSoon);
  EXPECT_EQ(refused.status().code(), ErrorCode::resource_exhausted) << refused.status().to_string();
  EXPECT_NE(refused.status().message().find("max_peers"), std::string::npos) << refused.status().to_string();
}

TEST(Tells, InFlightAndPastTransfersCanBeExplainedUpToTheLast1024) {
  Pair pair;
  const auto waiting = pair.left.engine().receive(pair.to_right, 9, {pair.left.region().id, 0, 8});
  EXPECT_EQ(pair.left.engine().explain(*waiting)->state, "in flight");
  const auto first = pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8));
  (void)finish(pair.left.engine(), first);
  EXPECT_EQ(pair.left.engine().explain(*first)->state, "ok");
  // The last 1,024 at least: those that their callers do are remembered beside the others, so both kinds are needed.
  RequestOptions checked;
  checked.checksum = true;
  for (int i = 0; i < 1024; ++i) {
    (void)finish(pair.left.engine(), pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8)));
    (void)finish(pair.left.engine(), pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8), checked));
  }
  // A caller does one only while the worker is between two steps: more of them, until 1,024 were done so.
  for (int i = 0; i < 64 * 1024 && pair.left.engine().explain(*first); ++i)
    (void)finish(pair.left.engine(), pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8)));
  EXPECT_EQ(pair.left.engine().explain(*first).status().code(), ErrorCode::not_found);
  const auto all = pair.left.engine().explain(pair.to_right);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->state, "ready");
  ASSERT_EQ(all->links.size(), 1u);
}

TEST(Tells, MetricsAgreeWithWhatWasAskedFor) {
  Pair pair;
  for (int i = 0; i < 10; ++i)
    (void)finish(pair.left.engine(), pair.left.engine().write(pair.to_right, pair.extent(0, 0, 1000)));
  const std::uint64_t index[] = {1 << 21};
  const Paged outside{pair.left.region().id, pair.remote.id, 8, 1, 1, index, index};
  EXPECT_FALSE(finish(pair.left.engine(), pair.left.engine().write(pair.to_right, outside)).status);
  const Metrics metrics = pair.left.engine().metrics();
  ASSERT_EQ(metrics.peers.size(), 1u);
  EXPECT_EQ(metrics.peers[0].transfers_ok, 10u);
  EXPECT_EQ(metrics.peers[0].transfers_failed, 1u);
  EXPECT_EQ(metrics.peers[0].bytes, 10'000u);
  EXPECT_EQ(metrics.peers[0].latency.count, 10u);
  EXPECT_GE(metrics.peers[0].latency.max_ns, metrics.peers[0].latency.p50_ns);
  EXPECT_EQ(metrics.peers[0].in_flight, 0u);
  ASSERT_EQ(metrics.links.size(), 1u);
  EXPECT_TRUE(metrics.links[0].up);
  EXPECT_EQ(metrics.links[0].bytes_out, 10'000u);
  EXPECT_EQ(metrics.transfers_in_use, 0u);
}

}  // namespace
}  // namespace fairway::promises
