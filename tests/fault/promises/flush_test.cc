// Flush and drain: all that was submitted before is complete, whatever becomes of it and of the peer, and what is
// submitted meanwhile does not hold them up. Cases: a chain of transfers that each start the next; a peer that dies; a
// link that breaks; two peers, of which one is slow.
#include <array>

#include "cluster.h"

namespace fairway::promises {
namespace {

constexpr std::uint64_t kLong = 60'000;  // takes 60 ms by slow()

NicDevice slow() {
  return nic(1'000'000);
}

// Each of its transfers starts the next one when it ends.
struct Chain {
  Cluster::Node* node;
  Cluster::Road road;
  int begun = 0, ended = 0;
  void go() {
    RequestOptions options;
    options.deliver = Deliver::to_callback;
    options.user_data = this;
    options.callback = [](const Completion&, void* user) {
      auto& self = *static_cast<Chain*>(user);
      ++self.ended;
      if (self.begun < 20) self.go();
    };
    ++begun;
    EXPECT_TRUE(node->engine->write(road.peer, Cluster::extent(*node, road, 0, 0, kLong), options));
  }
};

TEST(Flush, WhatIsSubmittedMeanwhileDoesNotExtendIt) {
  Cluster cluster;
  auto& a = cluster.add({slow()});
  auto& b = cluster.add({slow()});
  Chain chain{&a, cluster.connect(a, b)};
  for (const bool all : {false, true}) {
    chain.begun = chain.ended = 0;
    chain.go();
    const Status status = all ? a.engine->drain(Cluster::kWithin) : a.engine->flush(chain.road.peer, Cluster::kWithin);
    EXPECT_TRUE(status) << status.to_string();
    EXPECT_GE(chain.ended, 1);
    EXPECT_LT(chain.ended, 5) << "it waited for those that came later";
    EXPECT_TRUE(cluster.run_until(20 * kSecond, [&] { return chain.ended == 20; }));
  }
}

TEST(Flush, APeerThatDiesEndsIt) {
  Cluster cluster;
  auto& a = cluster.add({slow()});
  auto& b = cluster.add({slow()});
  const auto road = cluster.connect(a, b);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, kLong));
  cluster.kill(b);
  EXPECT_EQ(a.engine->flush(road.peer, Timeout(1000)).code(), ErrorCode::timed_out) << "nobody knows it yet";
  EXPECT_TRUE(a.engine->flush(road.peer, Cluster::kWithin));
  const auto done = a.engine->wait(*id, Timeout(0));
  ASSERT_TRUE(done) << "its completion is there";
  EXPECT_EQ(done->status.code(), ErrorCode::peer_dead) << done->status.to_string();
}

TEST(Flush, ALinkThatBreaksDoesNotEndIt) {
  Cluster cluster;
  auto& a = cluster.add({slow(), slow()});
  auto& b = cluster.add({slow(), slow()});
  const auto road = cluster.connect(a, b);
  cluster.verify_links(a, road.peer);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, kLong));
  cluster.run(5 * kMillisecond);
  cluster.fabric().break_device(*a.host, 0, kSecond);
  EXPECT_TRUE(a.engine->flush(road.peer, Cluster::kWithin));
  const auto done = a.engine->wait(*id, Timeout(0));
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->status) << done->status.to_string();
  EXPECT_EQ(0, std::memcmp(a.data(), b.data(), kLong));
}

TEST(Flush, OnePeersTransfersDoNotHoldUpAnothersFlush) {
  Cluster cluster;
  auto& a = cluster.add({slow()});
  auto& near = cluster.add({slow()});
  auto& far = cluster.add({slow()});
  const auto to_near = cluster.connect(a, near), to_far = cluster.connect(a, far);
  const auto late = a.engine->send(to_far.peer, 1, {a.region.id, 0, kLong});  // nobody receives it yet
  const auto early = a.engine->write(to_near.peer, Cluster::extent(a, to_near, 0, 0, kLong));
  EXPECT_TRUE(a.engine->flush(to_near.peer, Cluster::kWithin));
  EXPECT_TRUE(a.engine->wait(*early, Timeout(0)));
  EXPECT_EQ(a.engine->wait(*late, Timeout(0)).status().code(), ErrorCode::timed_out);
  EXPECT_EQ(a.engine->drain(std::chrono::milliseconds(200)).code(), ErrorCode::timed_out);
  std::array<PeerEvent, 1> event;
  ASSERT_EQ(far.engine->poll_peer_events(event), 1u);
  EXPECT_TRUE(far.engine->receive(event[0].peer, 1, {far.region.id, 0, kLong}));
  EXPECT_TRUE(a.engine->drain(Cluster::kWithin));
  EXPECT_TRUE(a.engine->wait(*late, Timeout(0)));
}

}  // namespace
}  // namespace fairway::promises
