#include "engine/links/rates.h"
#include "one_link.h"
#include "unit/predict/machines.h"

namespace fairway::engine {
namespace {

using predict::test::server;
using transport::MovedBy;

// Two sockets, each with a GPU and a NIC; the wire is the first one's.
struct RatesOfLinks : OneLink {
  RatesOfLinks() : OneLink(1, [] { return predict::Model(server({.bridges_per_socket = 1})); }) {
    wire().port().name = server({.bridges_per_socket = 1}).nics[0].name + "/1";
    wire().port().moved_by = MovedBy::nic;
  }
  void look() { (void)machine.step(0); }
};

TEST_F(RatesOfLinks, OfANicAreThoseOfItsMachinesModelOnceItIsKnown) {
  rates.learn();
  EXPECT_TRUE(links[0].rates.empty());
  EXPECT_EQ(executor.started, 1) << "nobody looks at the machine";
}

TEST_F(RatesOfLinks, DependOnWhereTheMemoryIs) {
  look();
  rates.learn();
  ASSERT_EQ(links[0].rates.size(), machine.found()->places());
  const PlaceRate near = links[0].rates[1], far = links[0].rates[2];
  EXPECT_GT(near.expected, far.expected);
  EXPECT_GT(far.least, 0u);
  EXPECT_LE(near.least, near.expected);
  EXPECT_EQ(links[0].rate(1), near.expected);
  ExplainedLink line;
  rates.expect(links[0], {1, kNoPlace, true, false}, line);
  EXPECT_GT(line.expected_low, 0);
  EXPECT_GE(line.expected_high, line.expected_low);
  EXPECT_FALSE(line.bound.empty());
}

TEST_F(RatesOfLinks, OfSocketsToAnotherHostTheModelSaysNothing) {
  EXPECT_TRUE(rates.asks_for_the_machine());
  wire().port().moved_by = MovedBy::sockets;
  wire().port().name = "eth0";
  EXPECT_FALSE(rates.asks_for_the_machine());
  ExplainedLink line;
  rates.expect(links[0], {}, line);
  EXPECT_EQ(line.expected_high, 0);
  EXPECT_EQ(line.bound, "no model for these two memories");
  wire().port().bytes_per_second = 1000;
  rates.expect(links[0], {}, line);
  EXPECT_EQ(line.expected_high, 1000);
  wire().port().name = "lo";
  EXPECT_TRUE(rates.asks_for_the_machine());
}

TEST_F(RatesOfLinks, EndsOfARequestAreItsMemories) {
  look();
  locals.add(local, locals.register_with_all({}, {}), {}, {{MemoryKind::host, {}}, 1});
  Request request = write(64);
  const TransferEnds out = rates.ends_of(request);
  EXPECT_EQ(out.here, 4) << "of the second node";
  EXPECT_EQ(out.there, kAnyNode);
  EXPECT_TRUE(out.outwards);
  request.operation = Operation::read;
  EXPECT_FALSE(rates.ends_of(request).outwards);
  request.operation = Operation::send;
  EXPECT_EQ(rates.ends_of(request).there, kNoPlace) << "the receiver says where";
}

// What is shorter is bound by latency.
TEST_F(RatesOfLinks, LongTransfersAloneAreHeldToThem) {
  look();
  rates.learn();
  links[0].rates[kAnyNode].least = 1'000'000'000;
  const auto paced = [&](std::uint64_t bytes) {
    Transfer& t = peer.table[peer.begin(write(bytes))];
    rates.find_places(t);
    return t.paced;
  };
  EXPECT_TRUE(paced(1 << 20));
  EXPECT_FALSE(paced(kStripeMinimum - 1));
  links[0].rates[kAnyNode].least = 0;
  EXPECT_FALSE(paced(1 << 20)) << "no figure";
}

TEST_F(RatesOfLinks, ALinkThatStaysUnderHalfOfThemIsToldOnce) {
  for (int window = 0; window < 2 * Pace::kWindows; ++window) {
    links[0].pace.posted(1e9, peer.time);
    EXPECT_EQ(slow.size(), window < Pace::kWindows ? 0u : 1u);
    peer.time += Pace::kWindow;
    rates.keep_pace(links[0], 1000);
  }
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_NE(slow[0].find("where at least 1.00 GB/s are expected"), std::string::npos) << slow[0];
  EXPECT_NE(slow[0].find("150 ms"), std::string::npos) << slow[0];
}

}  // namespace
}  // namespace fairway::engine
