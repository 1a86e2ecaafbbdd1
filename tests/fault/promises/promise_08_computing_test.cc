// Promise 8, alive: an engine driven by its caller (Progress::caller) that computes for long is not frozen. Transfers
// to it wait, and neither its links nor its session are lost. A dead link is still detected once that engine makes
// progress again, and a dead process as usual.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nodes.h"
#include "stalling_relay.h"

namespace fairway::promises {
namespace {

constexpr Time kBound = 2 * kSecond;  // EngineOptions::peer_timeout

class Computing : public testing::Test {
 protected:
  static EngineOptions by_caller() {
    EngineOptions options;
    options.progress = Progress::caller;
    return options;
  }
  // `thinker` computes for so long; everyone else runs on.
  void compute(Time time) { cluster.run(time); }
  // `thinker` drives its engine for so long, every `every`.
  void act(Cluster::Node& thinker, Time time, Time every = kMillisecond) {
    std::vector<Completion> completions(16);
    for (Time at = 0; at < time; at += every) {
      (void)thinker.engine->poll(completions);
      cluster.run(every);
    }
  }
  std::vector<std::string> bad_events(Cluster::Node& node) {
    std::vector<PeerEvent> events(64);
    std::vector<std::string> bad;
    const std::size_t count = node.engine->poll_peer_events(events);
    for (std::size_t i = 0; i < count; ++i)
      if (events[i].kind == PeerEvent::Kind::down || events[i].kind == PeerEvent::Kind::link_down)
        bad.push_back(events[i].link + " " + events[i].reason.to_string());
    return bad;
  }
  // Connects while the thinker drives its engine: its handshake runs in its caller's steps.
  Cluster::Road connect(Cluster::Node& thinker, Cluster::Node& other) { return cluster.connect(thinker, other); }

  bool hold = false;  // used by StallingRelay, which lives as long as the cluster
  Cluster cluster;
};

TEST_F(Computing, ThatOneIsWaitedForAndLosesNeitherLinkNorSession) {
  for (const bool by_messages : {false, true}) {
    auto& thinker = cluster.add({by_messages ? message_nic() : nic()}, by_caller());
    auto& other = cluster.add({by_messages ? message_nic() : nic()});
    const auto road = connect(thinker, other);
    act(thinker, 20 * kMillisecond);
    PeerId back;
    std::vector<PeerEvent> events(16);
    const std::size_t count = other.engine->poll_peer_events(events);
    for (std::size_t i = 0; i < count; ++i)
      if (events[i].kind == PeerEvent::Kind::up) back = events[i].peer;
    ASSERT_TRUE(back);
    const auto memory = other.engine->import_region(back, *thinker.engine->describe(thinker.region));
    ASSERT_TRUE(memory) << memory.status().to_string();
    (void)bad_events(thinker);
    for (int round = 0; round < 3; ++round) {
      SCOPED_TRACE("round " + std::to_string(round) + (by_messages ? ", by messages" : ""));
      RequestOptions options;
      options.notify.kind = NotifyKind::event;
      const auto write = other.engine->write(back, Extent{{other.region.id, 0, 4096}, {memory->id, 0}}, options);
      const auto send = other.engine->send(back, 3, {other.region.id, 0, 20'000});
      ASSERT_TRUE(write && send);
      const auto mine = thinker.engine->write(road.peer, Cluster::extent(thinker, road, 0, 8192, 4096));
      compute(10 * kBound);
      const auto receive = thinker.engine->receive(road.peer, 3, {thinker.region.id, 8192, 20'000});
      act(thinker, 100 * kMillisecond);
      EXPECT_TRUE(cluster.finish(other, write).status);
      EXPECT_TRUE(cluster.finish(other, send).status);
      EXPECT_TRUE(cluster.finish(thinker, receive).status);
      EXPECT_TRUE(cluster.finish(thinker, mine).status);
      std::vector<Notification> got(4);
      EXPECT_EQ(thinker.engine->poll_notifications(got), 1u);
      EXPECT_EQ(bad_events(other), std::vector<std::string>{});
      EXPECT_EQ(bad_events(thinker), std::vector<std::string>{});
    }
  }
}

TEST_F(Computing, ALinkThatBreaksMeanwhileComesBackWhenItActs) {
  auto& thinker = cluster.add({nic()}, by_caller());
  auto& other = cluster.add({nic()});
  const auto road = connect(thinker, other);
  act(thinker, 20 * kMillisecond);
  (void)bad_events(other);
  const auto mine = thinker.engine->write(road.peer, Cluster::extent(thinker, road, 0, 0, 4096));
  cluster.fabric().break_between(*thinker.host, *other.host);
  compute(5 * kBound);
  act(thinker, kSecond);
  EXPECT_TRUE(cluster.finish(thinker, mine).status);
  for (const std::string& bad : bad_events(other)) EXPECT_NE(bad.substr(0, 1), " ") << "the session: " << bad;
}

// Its caller drives it, and still nothing completes: the link is dead.
TEST_F(Computing, ADeadLinkIsFoundOnceItActs) {
  auto& thinker = cluster.add({nic()}, by_caller());
  auto& other = cluster.add({nic(), nic()}, {},
                            [&](auto below) { return std::make_unique<StallingRelay>(std::move(below), hold); });
  const auto road = connect(thinker, other);
  act(thinker, 20 * kMillisecond);
  std::vector<PeerEvent> events(16);
  PeerId back;
  const std::size_t count = other.engine->poll_peer_events(events);
  for (std::size_t i = 0; i < count; ++i)
    if (events[i].kind == PeerEvent::Kind::up) back = events[i].peer;
  const auto memory = other.engine->import_region(back, *thinker.engine->describe(thinker.region));
  ASSERT_TRUE(memory);
  hold = true;
  const auto write = other.engine->write(back, Extent{{other.region.id, 0, 64}, {memory->id, 0}});
  compute(5 * kBound);
  EXPECT_EQ(bad_events(other), std::vector<std::string>{}) << "nobody can know yet";
  act(thinker, 2 * kBound);
  EXPECT_NE(bad_events(other), std::vector<std::string>{}) << "the link is dead and was not found";
  hold = false;
  act(thinker, kSecond);
  EXPECT_TRUE(cluster.finish(other, write).status);
  (void)road;
}

TEST_F(Computing, OneThatDiedIsKnownAsEver) {
  auto& thinker = cluster.add({nic()}, by_caller());
  auto& other = cluster.add({nic()});
  (void)connect(thinker, other);
  act(thinker, 20 * kMillisecond);
  (void)bad_events(other);
  cluster.kill(thinker);
  EXPECT_TRUE(cluster.run_until(kBound + kBound / 10, [&] { return !bad_events(other).empty(); }));
}

// Over transports where a slice completes only once the peer's engine has taken it: real engines and real time.
TEST(Alive, APeerThatComputesLosesNothingOverSockets) {
  constexpr auto kShort = std::chrono::milliseconds(300);
  EngineOptions options;
  options.transports = {"tcp"};
  options.peer_timeout = kShort;
  auto other = Engine::open(options);
  options.progress = Progress::caller;
  auto thinker = Engine::open(options);
  ASSERT_TRUE(other && thinker);
  std::vector<std::byte> near(1 << 16), far(1 << 16);
  const auto source = other->register_memory(near.data(), near.size(), Access::all);
  const auto target = thinker->register_memory(far.data(), far.size(), Access::all);
  ASSERT_TRUE(source && target && thinker->publish("far", *target));
  std::atomic<bool> computes{false}, over{false};
  std::thread caller([&] {  // drives its engine, except while it computes
    while (!over) {
      (void)thinker->wait_notification(std::chrono::milliseconds(5));
      if (computes) std::this_thread::sleep_for(6 * kShort);
      computes = false;
    }
  });
  const auto peer = other->connect(thinker->address(), kSoon);
  EXPECT_TRUE(peer) << peer.status().to_string();
  const auto remote = other->lookup(*peer, "far", kSoon);
  EXPECT_TRUE(remote) << remote.status().to_string();
  for (int round = 0; round < 2; ++round) {
    computes = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto began = std::chrono::steady_clock::now();
    const auto id = other->write(*peer, Extent{{source->id, 0, near.size()}, {remote->id, 0}});
    const Completion done = finish(*other, id);
    EXPECT_TRUE(done.status) << done.status.to_string();
    EXPECT_GT(std::chrono::steady_clock::now() - began, 4 * kShort) << "the peer did not compute";
  }
  over = true;
  caller.join();
  for (const LinkMetrics& link : other->metrics().links) EXPECT_EQ(link.failures, 0u) << link.name;
  std::vector<PeerEvent> events(16);
  const std::size_t count = other->poll_peer_events(events);
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_TRUE(events[i].kind == PeerEvent::Kind::up || events[i].kind == PeerEvent::Kind::link_up)
        << events[i].link << " " << events[i].reason.to_string();
}

}  // namespace
}  // namespace fairway::promises
