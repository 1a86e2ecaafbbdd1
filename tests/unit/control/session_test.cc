#include "engine.h"

namespace fairway::control {
namespace {

TEST(Session, ConnectGivesOneSessionOnBothSides) {
  FakeWorld world;
  Pair pair(world);
  ASSERT_EQ(pair.a.up.size(), 1U);
  ASSERT_EQ(pair.b.up.size(), 1U);
  const PeerInfo& at_a = pair.a.up.begin()->second;
  const PeerInfo& at_b = pair.b.up.begin()->second;
  EXPECT_TRUE(at_a.initiated_here);
  EXPECT_FALSE(at_b.initiated_here);
  EXPECT_EQ(at_a.incarnation, pair.b.control->incarnation());
  EXPECT_EQ(at_b.incarnation, pair.a.control->incarnation());
  EXPECT_EQ(at_a.address, pair.b.control->address());
  EXPECT_EQ(at_b.address, pair.a.control->address());
  EXPECT_EQ(at_a.secret, at_b.secret);
  EXPECT_NE(at_a.secret, (std::array<std::byte, 32>{}));
}

TEST(Session, TellsWhoMakesTheProgressAndWhenItActs) {
  FakeWorld world;
  TestEngine threads(world);
  Options by_caller;
  by_caller.by_caller = true;
  TestEngine thinker(world, by_caller);
  const auto session = threads.connect(thinker.control->address());
  ASSERT_TRUE(session.is_ok()) << session.status().to_string();
  ASSERT_TRUE(world.run_until([&] { return !thinker.up.empty(); }, kSecond));
  EXPECT_TRUE(threads.up.at(*session).by_caller);
  EXPECT_FALSE(thinker.up.begin()->second.by_caller);
  thinker.progress_now = {false, 7};
  world.run(2 * kSecond);
  ASSERT_GE(threads.beats.size(), 3U);
  EXPECT_EQ(threads.beats.back(), (std::pair<SessionId, std::uint64_t>(*session, 7)));
  thinker.progress_now = {false, 8};
  world.run(2 * kSecond);
  EXPECT_EQ(threads.beats.back().second, 8U);
  EXPECT_TRUE(thinker.beats.empty()) << "nobody wants to know of one with threads";
}

TEST(Session, ConnectingAgainGivesTheSameSession) {
  FakeWorld world;
  Pair pair(world);
  auto again = pair.a.connect(pair.b.control->address());
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(again.value(), pair.ab);
  auto back = pair.b.connect(pair.a.control->address());
  ASSERT_TRUE(back.is_ok());
  EXPECT_EQ(back.value(), pair.ba);
  EXPECT_EQ(pair.a.up.size() + pair.b.up.size(), 2U);
}

TEST(Session, SimultaneousConnectsEndInOneSession) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    FakeWorld world(seed);
    world.latency = (1 + seed % 7) * 10 * kMicrosecond;
    TestEngine a(world);
    TestEngine b(world);
    ASSERT_TRUE(a.control->connect(b.control->address(), 1, kSecond).is_ok());
    world.run(seed * 5 * kMicrosecond);
    ASSERT_TRUE(b.control->connect(a.control->address(), 1, kSecond).is_ok());
    ASSERT_TRUE(world.run_until([&] { return a.answers.size() == 1 && b.answers.size() == 1; }, 2 * kSecond));
    world.run(100 * kMillisecond);
    ASSERT_TRUE(a.answers.at(1).is_ok() && b.answers.at(1).is_ok()) << seed;
    ASSERT_EQ(a.up.size(), 1U) << seed;
    ASSERT_EQ(b.up.size(), 1U) << seed;
    EXPECT_TRUE(a.down.empty() && b.down.empty()) << seed;
    EXPECT_NE(a.up.begin()->second.initiated_here, b.up.begin()->second.initiated_here) << seed;
    EXPECT_EQ(a.up.begin()->second.secret, b.up.begin()->second.secret) << seed;
    EXPECT_EQ(world.open_ends, 2U) << "one connection stays, seed " << seed;
  }
}

TEST(Session, AnEngineConnectsToItself) {
  FakeWorld world;
  TestEngine a(world);
  auto session = a.connect(a.control->address());
  ASSERT_TRUE(session.is_ok()) << session.status().to_string();
  EXPECT_EQ(a.up.size(), 1U);
  ASSERT_TRUE(a.send(session.value(), "to myself").is_ok());
  ASSERT_TRUE(world.run_until([&] { return a.messages.size() == 1; }, kSecond));
  EXPECT_EQ(a.messages[0].second, "to myself");
  world.run(10 * kSecond);
  EXPECT_EQ(a.up.size(), 1U);
  a.control->disconnect(session.value());
  EXPECT_TRUE(world.run_until([&] { return a.down.size() == 1; }, kSecond));
}

TEST(Session, MessagesArriveInOrder) {
  FakeWorld world;
  world.segment = 700;  // frames are cut anywhere
  Pair pair(world);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(
        pair.a.send(pair.ab, "a" + std::to_string(i) + std::string(static_cast<std::size_t>(i) * 17, 'x')).is_ok());
    ASSERT_TRUE(pair.b.send(pair.ba, "b" + std::to_string(i)).is_ok());
  }
  ASSERT_TRUE(world.run_until([&] { return pair.b.messages.size() == 200 && pair.a.messages.size() == 200; }, kSecond));
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(pair.b.messages[static_cast<std::size_t>(i)].second.substr(0, 1 + std::to_string(i).size()),
              "a" + std::to_string(i));
    EXPECT_EQ(pair.a.messages[static_cast<std::size_t>(i)].second, "b" + std::to_string(i));
  }
}

// Connections are reset again and again at random places while both sides talk.
TEST(Session, MessagesSurviveBrokenConnectionsExactlyOnce) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    FakeWorld world(seed);
    Pair pair(world);
    std::mt19937_64 random(seed);
    std::size_t sent = 0;
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 10; ++i, ++sent) {
        const std::string text = std::to_string(sent) + std::string(random() % 3000, 'x');
        ASSERT_TRUE(pair.a.send(pair.ab, text).is_ok());
        ASSERT_TRUE(pair.b.send(pair.ba, text).is_ok());
      }
      world.run(random() % (400 * kMicrosecond));
      world.cut_connections();
    }
    ASSERT_TRUE(
        world.run_until([&] { return pair.b.messages.size() >= sent && pair.a.messages.size() >= sent; }, kSecond))
        << "seed " << seed << ": " << pair.a.messages.size() << " and " << pair.b.messages.size() << " of " << sent;
    world.run(kSecond);
    ASSERT_EQ(pair.a.messages.size(), sent);
    ASSERT_EQ(pair.b.messages.size(), sent);
    for (std::size_t i = 0; i < sent; ++i) {
      ASSERT_EQ(std::stoull(pair.a.messages[i].second), i) << seed;
      ASSERT_EQ(std::stoull(pair.b.messages[i].second), i) << seed;
    }
    EXPECT_TRUE(pair.a.down.empty() && pair.b.down.empty()) << seed;
  }
}

TEST(Session, AKilledPeerIsNoticedAtOnce) {
  FakeWorld world;
  Pair pair(world);
  world.run(3 * kSecond);
  const Time killed = world.now();
  pair.b.node.kill();
  ASSERT_TRUE(world.run_until([&] { return !pair.a.down.empty(); }, kSecond));
  EXPECT_LT(world.now() - killed, 20 * kMillisecond);
  EXPECT_EQ(pair.a.down[0].second.code(), ErrorCode::peer_dead) << pair.a.down[0].second.to_string();
}

TEST(Session, AFrozenPeerIsDeadWithinTheBoundAndStaysDead) {
  FakeWorld world;
  Pair pair(world);
  world.run(3 * kSecond);
  const Time frozen = world.now();
  pair.b.node.frozen = true;
  ASSERT_TRUE(world.run_until([&] { return !pair.a.down.empty(); }, 5 * kSecond));
  EXPECT_LE(world.now() - frozen, 2200 * kMillisecond);
  EXPECT_GE(world.now() - frozen, 1400 * kMillisecond);
  EXPECT_EQ(pair.a.down[0].second.code(), ErrorCode::peer_dead);
  world.run(5 * kSecond);
  pair.b.node.frozen = false;
  ASSERT_TRUE(world.run_until([&] { return !pair.b.down.empty(); }, 100 * kMillisecond));
  EXPECT_EQ(pair.b.down[0].second.code(), ErrorCode::stale_incarnation) << pair.b.down[0].second.to_string();
  EXPECT_TRUE(pair.a.up.empty() && pair.b.up.empty());
  auto again = pair.b.connect(pair.a.control->address());
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_NE(again.value(), pair.ba);
}

TEST(Session, AnIsolatedPeerIsDeadOnBothSidesWithinTheBound) {
  FakeWorld world;
  Pair pair(world);
  world.run(3 * kSecond);
  pair.b.node.isolated = true;
  const Time cut = world.now();
  ASSERT_TRUE(world.run_until([&] { return !pair.a.down.empty() && !pair.b.down.empty(); }, 5 * kSecond));
  EXPECT_LE(world.now() - cut, 2200 * kMillisecond);
  EXPECT_EQ(pair.a.down[0].second.code(), ErrorCode::peer_dead);
  EXPECT_EQ(pair.b.down[0].second.code(), ErrorCode::peer_dead);
}

// The whole machine stood still (a paused VM): nobody is to be declared dead for that.
TEST(Session, AFreezeOfEverybodyKillsNobody) {
  FakeWorld world;
  Pair pair(world);
  world.run(kSecond);
  pair.a.node.frozen = pair.b.node.frozen = true;
  world.run(20 * kSecond);
  pair.a.node.frozen = pair.b.node.frozen = false;
  world.run(5 * kSecond);
  EXPECT_TRUE(pair.a.down.empty() && pair.b.down.empty());
  ASSERT_TRUE(pair.a.send(pair.ab, "alive").is_ok());
  EXPECT_TRUE(world.run_until([&] { return pair.b.messages.size() == 1; }, kSecond));
}

TEST(Session, StuckWorkersCountAsFrozen) {
  FakeWorld world;
  Pair pair(world);
  pair.b.progress_now = {true, 100};
  world.run(300 * kMillisecond);
  for (int i = 0; i < 40; ++i) {  // slow, but moving: alive
    ++pair.b.progress_now.steps;
    world.run(400 * kMillisecond);
  }
  ASSERT_TRUE(pair.a.down.empty());
  const Time stuck = world.now();
  ASSERT_TRUE(world.run_until([&] { return !pair.a.down.empty(); }, 5 * kSecond));
  EXPECT_LE(world.now() - stuck, 2200 * kMillisecond);
  EXPECT_EQ(pair.a.down[0].second.code(), ErrorCode::peer_dead);
  EXPECT_NE(pair.a.down[0].second.message().find("workers"), std::string::npos);
}

TEST(Session, AnEngineWithNothingQueuedIsNotStuck) {
  FakeWorld world;
  Pair pair(world);
  pair.b.progress_now = {false, 7};
  world.run(20 * kSecond);
  EXPECT_TRUE(pair.a.down.empty());
}

TEST(Session, ARestartedPeerEndsTheOldSessionAtOnce) {
  FakeWorld world;
  Options options;
  options.listen = "127.0.0.1:5000";
  TestEngine a(world);
  auto b = std::make_unique<TestEngine>(world, options);
  ASSERT_TRUE(a.connect("127.0.0.1:5000").is_ok());
  const auto old_life = b->control->incarnation();
  world.run(kSecond);
  b->node.kill();
  const Time killed = world.now();
  TestEngine again(world, options);
  ASSERT_TRUE(again.open_status.is_ok()) << again.open_status.to_string();
  ASSERT_TRUE(world.run_until([&] { return !a.down.empty(); }, kSecond));
  EXPECT_LT(world.now() - killed, 20 * kMillisecond);
  EXPECT_EQ(a.down[0].second.code(), ErrorCode::stale_incarnation) << a.down[0].second.to_string();
  auto session = a.connect("127.0.0.1:5000");
  ASSERT_TRUE(session.is_ok());
  EXPECT_NE(a.up.begin()->second.incarnation, old_life);
}

TEST(Session, DisconnectIsOrderlyAndDeliversWhatWasSent) {
  FakeWorld world;
  Pair pair(world);
  ASSERT_TRUE(pair.a.send(pair.ab, "last words").is_ok());
  pair.a.control->disconnect(pair.ab);
  ASSERT_TRUE(world.run_until([&] { return !pair.b.down.empty(); }, kSecond));
  EXPECT_EQ(pair.b.down[0].second.code(), ErrorCode::closed);
  ASSERT_EQ(pair.b.messages.size(), 1U);
  EXPECT_EQ(pair.a.down[0].second.code(), ErrorCode::closed);
  EXPECT_EQ(pair.a.send(pair.ab, "more").code(), ErrorCode::not_found);
  auto again = pair.a.connect(pair.b.control->address());
  ASSERT_TRUE(again.is_ok());
  EXPECT_NE(again.value(), pair.ab);
}

TEST(Session, WhoDisconnectsForAReasonTellsThePeerWhichOne) {
  for (const ErrorCode code : {ErrorCode::protocol_error, ErrorCode::link_failed}) {
    FakeWorld world;
    Pair pair(world);
    pair.a.control->disconnect(pair.ab, {code, "the words of it"});
    ASSERT_TRUE(world.run_until([&] { return !pair.b.down.empty(); }, kSecond));
    const ErrorCode heard = code == ErrorCode::protocol_error ? code : ErrorCode::closed;
    EXPECT_EQ(pair.b.down[0].second.code(), heard) << pair.b.down[0].second.to_string();
    EXPECT_EQ(pair.b.down[0].second.message(), "the words of it");
  }
}

TEST(Session, CloseTellsPeersAtOnceAndCallsNobodyAfter) {
  FakeWorld world;
  Pair pair(world);
  const std::uint64_t token = 99;
  ASSERT_TRUE(pair.a.control->connect("127.0.0.1:9", token, 100 * kSecond).is_ok());
  world.run(10 * kMillisecond);
  const Time start = world.now();
  pair.a.control->close();
  EXPECT_LT(world.now() - start, 10 * kMillisecond);
  EXPECT_EQ(pair.a.down.size(), 1U);
  EXPECT_EQ(pair.a.answers.at(token).status().code(), ErrorCode::closed);
  ASSERT_TRUE(world.run_until([&] { return !pair.b.down.empty(); }, 10 * kMillisecond));
  EXPECT_EQ(pair.b.down[0].second.code(), ErrorCode::closed);
  EXPECT_EQ(pair.a.control->connect("127.0.0.1:9", 100, kSecond).code(), ErrorCode::closed);
  world.run(5 * kSecond);
  EXPECT_EQ(pair.a.answers.size(), 2U);
}

TEST(Session, CloseDoesNotWaitForAFrozenPeer) {
  FakeWorld world;
  Pair pair(world);
  pair.b.node.frozen = true;
  const Time start = world.now();
  pair.a.control->close();
  EXPECT_LE(world.now() - start, 300 * kMillisecond);
}

TEST(Session, AFullQueueIsBackPressureAndSaysWhenThereIsRoom) {
  FakeWorld world;
  Options options;
  options.max_queued_bytes = 64 * 1024;
  Pair pair(world, options);
  pair.b.node.frozen = true;
  const std::string block(1000, 'x');
  std::size_t taken = 0;
  Status status;
  while ((status = pair.a.send(pair.ab, block)).is_ok()) ++taken;
  EXPECT_EQ(status.code(), ErrorCode::queue_full);
  EXPECT_EQ(taken, 64 * 1024 / (1000 + 64));
  EXPECT_EQ(pair.a.writables, 0U);
  pair.b.node.frozen = false;
  ASSERT_TRUE(world.run_until([&] { return pair.a.writables == 1; }, kSecond));
  EXPECT_TRUE(pair.a.send(pair.ab, block).is_ok());
  ASSERT_TRUE(world.run_until([&] { return pair.b.messages.size() == taken + 1; }, kSecond));
}

// More messages at once than the queue to control's thread has places: who was told "full" is told when there is room.
TEST(Session, AFullCommandQueueIsBackPressureToo) {
  FakeWorld world;
  Options options;
  options.max_queued_bytes = 4 << 20;
  Pair pair(world, options);
  std::size_t taken = 0;
  Status status;
  while ((status = pair.a.send(pair.ab, "x")).is_ok()) ++taken;
  EXPECT_EQ(status.code(), ErrorCode::queue_full);
  EXPECT_TRUE(world.run_until([&] { return pair.a.writables == 1; }, 10 * kMillisecond));
  EXPECT_TRUE(pair.a.send(pair.ab, "y").is_ok());
  EXPECT_TRUE(world.run_until([&] { return pair.b.messages.size() == taken + 1; }, kSecond));
}

TEST(Session, AOneWayStreamIsAcknowledgedBeforeTheQueueFills) {
  FakeWorld world;
  Options options;
  options.max_queued_bytes = 64 * 1024;
  Pair pair(world, options);
  for (int i = 0; i < 2000; ++i) {
    Status status;
    while (!(status = pair.a.send(pair.ab, std::string(500, 'x')))) {
      ASSERT_EQ(status.code(), ErrorCode::queue_full);
      ASSERT_TRUE(world.run_until([&, seen = pair.a.writables] { return pair.a.writables > seen; }, 10 * kMillisecond));
    }
  }
  EXPECT_TRUE(world.run_until([&] { return pair.b.messages.size() == 2000; }, kSecond));
}

TEST(Session, AMessageThatIsTooLongIsRefused) {
  FakeWorld world;
  Pair pair(world);
  EXPECT_TRUE(pair.a.send(pair.ab, std::string(kMaxMessage, 'x')).is_ok());
  EXPECT_TRUE(pair.a.send(pair.ab, "").is_ok());
  EXPECT_EQ(pair.a.send(pair.ab, std::string(kMaxMessage + 1, 'x')).code(), ErrorCode::out_of_range);
  EXPECT_EQ(pair.a.send(12345, "x").code(), ErrorCode::not_found);
  EXPECT_TRUE(world.run_until([&] { return pair.b.messages.size() == 2; }, kSecond));
}

TEST(Session, PeersWithDifferentBoundsKeepEachOtherAlive) {
  FakeWorld world;
  Options quick;
  quick.peer_timeout = 100 * kMillisecond;
  Options slow;
  slow.peer_timeout = 60 * kSecond;
  TestEngine a(world, quick);
  TestEngine b(world, slow);
  ASSERT_TRUE(a.connect(b.control->address()).is_ok());
  world.run(5 * kSecond);
  EXPECT_TRUE(a.down.empty() && b.down.empty());
}

}  // namespace
}  // namespace fairway::control
