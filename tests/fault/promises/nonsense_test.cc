// A malformed message arrives over a link, and its sender was told that it arrived. A message may be lost with it that
// nobody will retransmit. So the session ends on both sides with that reason, and nobody waits for ever.
#include <algorithm>
#include <array>
#include <optional>

#include "cluster.h"
#include "relay.h"

namespace fairway::promises {
namespace {

// Once armed, replaces the next received message with the end of its link, for the armed reason.
class LinkBreaker : public Relay {
 public:
  LinkBreaker(std::unique_ptr<transport::Transport> below, ErrorCode& armed) : Relay(std::move(below)), armed_(armed) {}
  std::size_t poll(std::span<transport::Event> events, Time now) override {
    const std::size_t count = Relay::poll(events, now);
    for (transport::Event& event : events.first(count)) {
      if (armed_ == ErrorCode::ok || event.kind != transport::EventKind::message) continue;
      const transport::LinkId link = event.link;
      event = {};
      event.kind = transport::EventKind::link_down;
      event.link = link;
      event.status = Status(std::exchange(armed_, ErrorCode::ok), "what no peer of this version sends");
    }
    return count;
  }

 private:
  ErrorCode& armed_;
};

std::optional<PeerEvent> down(const Cluster::Node& node) {
  std::array<PeerEvent, 1> event;
  while (node.engine->poll_peer_events(event) == 1)
    if (event[0].kind == PeerEvent::Kind::down) return event[0];
  return {};
}

// Once armed, b's transport ends the link of its next message.
struct BreakingPair {
  ErrorCode armed = ErrorCode::ok;
  Cluster cluster;
  Cluster::Node& a = cluster.add({nic(), nic()});
  Cluster::Node& b = cluster.add({nic(), nic()}, {},
                                 [this](auto below) { return std::make_unique<LinkBreaker>(std::move(below), armed); });
};

TEST(Nonsense, EndsTheSessionOnBothSidesAndWithItAllThatWaits) {
  BreakingPair pair;
  auto& [armed, cluster, a, b] = pair;
  const auto road = cluster.connect(a, b);
  const auto back = b.engine->connect(a.engine->address(), Cluster::kWithin);
  ASSERT_TRUE(back) << back.status().to_string();
  const auto asked = b.engine->receive(*back, 1, {b.region.id, 0, 64});
  const auto answer = a.engine->receive(road.peer, 2, {a.region.id, 64, 64});
  cluster.run(10 * kMillisecond);
  armed = ErrorCode::protocol_error;
  const auto sent = a.engine->send(road.peer, 1, {a.region.id, 0, 64});
  const Time start = cluster.simulation().now();
  for (const auto& [node, id] : {std::pair{&a, &sent}, std::pair{&a, &answer}, std::pair{&b, &asked}}) {
    const Status status = cluster.finish(*node, *id).status;
    EXPECT_EQ(status.code(), ErrorCode::protocol_error) << status.to_string();
    EXPECT_NE(status.message().find("what no peer of this version sends"), std::string::npos) << status.to_string();
    EXPECT_FALSE(status.peer().empty());
  }
  EXPECT_LT(cluster.simulation().now() - start, kSecond);
  for (const Cluster::Node* node : {&a, &b}) {
    const auto told = down(*node);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->reason.code(), ErrorCode::protocol_error) << told->reason.to_string();
  }
  // A new session starts without any of that state.
  const auto again = cluster.connect(a, b);
  EXPECT_TRUE(cluster.finish(a, a.engine->write(again.peer, Cluster::extent(a, again, 0, 0, 4096))).status);
}

TEST(Nonsense, IsNotWhatALinkLosesThatSaysSo) {
  BreakingPair pair;
  auto& [armed, cluster, a, b] = pair;
  const auto road = cluster.connect(a, b);
  cluster.run(10 * kMillisecond);
  armed = ErrorCode::link_failed;
  static_cast<void>(a.engine->send(road.peer, 1, {a.region.id, 0, 64}));
  cluster.run(kSecond);
  EXPECT_EQ(armed, ErrorCode::ok);
  EXPECT_FALSE(down(a));
  EXPECT_FALSE(down(b));
}

}  // namespace
}  // namespace fairway::promises
