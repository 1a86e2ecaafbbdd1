#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "control/context.h"
#include "control/session.h"

namespace fairway::control {
namespace {

TEST(Keepalive, ASilentPeerIsDeadAtTheBoundExactly) {
  Keepalive life(kSecond, 2 * kSecond, 2 * kSecond);
  EXPECT_EQ(life.dead_at(), 3 * kSecond);
  life.heard(2 * kSecond);
  EXPECT_EQ(life.dead_at(), 4 * kSecond);
  life.allow_for_pause(3 * kSecond, 500 * kMillisecond);
  EXPECT_EQ(life.dead_at(), 4500 * kMillisecond);
  life.allow_for_pause(3 * kSecond, 100 * kSecond);
  EXPECT_EQ(life.dead_at(), 5 * kSecond) << "never later than heard now";
}

TEST(Keepalive, BeatsOfAllSessionsShareTheirMoments) {
  Keepalive a(1'000'000'001, 2 * kSecond, 2 * kSecond);
  Keepalive b(1'400'000'007, 2 * kSecond, 2 * kSecond);
  EXPECT_EQ(a.next_beat(), b.next_beat());
  EXPECT_EQ(a.interval(), 500 * kMillisecond);
}

TEST(Keepalive, TheShorterBoundSetsTheBeatAndAbsurdOnesAreClamped) {
  EXPECT_EQ(Keepalive(0, 2 * kSecond, 400 * kMillisecond).interval(), 100 * kMillisecond);
  EXPECT_EQ(Keepalive(0, 2 * kSecond, 1).interval(), kMinTimeout / 4);
  EXPECT_EQ(Keepalive(0, 2 * kSecond, kNever).interval(), 500 * kMillisecond);
}

TEST(Keepalive, FourEqualBeatsWithWorkQueuedAreStuckWorkers) {
  Keepalive life(0, 2 * kSecond, 2 * kSecond);
  const Beat stuck{0, 5, true};
  EXPECT_FALSE(life.on_beat(stuck) || life.on_beat(stuck) || life.on_beat(stuck));
  EXPECT_FALSE(life.on_beat({0, 6, true})) << "a step begins the count anew";
  EXPECT_FALSE(life.on_beat({0, 6, true}) || life.on_beat({0, 6, true}));
  EXPECT_FALSE(life.on_beat({0, 6, false})) << "nothing queued, nothing stuck";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(life.on_beat({0, 6, true}));
  EXPECT_TRUE(life.on_beat({0, 6, true}));
}

TEST(Outbox, KeepsWhatIsNotAcknowledgedAndSendsItAgain) {
  Outbox box;
  for (const char* text : {"a", "b", "c"}) box.add(text);
  for (int i = 0; i < 3; ++i) box.written();
  EXPECT_FALSE(box.next());
  EXPECT_EQ(box.acknowledge(1).value(), 1 + kMessageOverhead);
  EXPECT_EQ(box.acknowledge(1).value(), 0U) << "old news";
  box.rewind();
  EXPECT_EQ(box.resume(2).value(), 1 + kMessageOverhead);
  ASSERT_TRUE(box.next());
  EXPECT_EQ(box.next()->sequence, 3U);
  EXPECT_EQ(box.next()->bytes, "c");
}

TEST(Outbox, LiesAboutItsCountsAreErrors) {
  Outbox box;
  box.add("a");
  EXPECT_EQ(box.acknowledge(1).status().code(), ErrorCode::protocol_error) << "not written yet";
  box.written();
  EXPECT_EQ(box.acknowledge(2).status().code(), ErrorCode::protocol_error);
  EXPECT_TRUE(box.acknowledge(1).is_ok());
  EXPECT_EQ(box.resume(0).status().code(), ErrorCode::protocol_error) << "it had message 1";
  EXPECT_EQ(box.resume(2).status().code(), ErrorCode::protocol_error);
}

TEST(Mailbox, NothingIsCountedOnTheSlotsNextSession) {
  Mailbox box(2, 10'000);
  const SessionId old = box.open(0);
  const std::array<std::byte, 1000> bytes{};
  ASSERT_TRUE(box.send(old, bytes).is_ok());
  box.shut(0);
  EXPECT_EQ(box.send(old, bytes).code(), ErrorCode::not_found);
  const SessionId young = box.open(0);
  EXPECT_NE(old, young);
  EXPECT_FALSE(box.release(old, 1064));
  EXPECT_EQ(box.send(old, bytes).code(), ErrorCode::not_found);
  box.disconnect(old);
  EXPECT_FALSE(box.wants_disconnect(young));
  int taken = 0;
  while (box.send(young, bytes).is_ok()) ++taken;
  EXPECT_EQ(taken, 10'000 / 1064);
}

// An engine that tells all its peers something does so before the control thread runs again.
TEST(Mailbox, TakesAMessageForEachOfThousandsOfSessionsAtOnce) {
  constexpr std::uint32_t kSessions = 5000;
  Mailbox box(kSessions, 10'000);
  std::vector<SessionId> sessions;
  for (std::uint32_t slot = 0; slot < kSessions; ++slot) sessions.push_back(box.open(slot));
  const std::array<std::byte, 100> bytes{};
  for (int message = 0; message < 2; ++message)
    for (const SessionId session : sessions) ASSERT_TRUE(box.send(session, bytes).is_ok());
  Command command;
  for (std::uint32_t i = 0; i < 2 * kSessions; ++i) ASSERT_TRUE(box.take(command));
  EXPECT_FALSE(box.take(command));
}

TEST(Mailbox, ManyThreadsNeverExceedTheBoundAndAllIsTaken) {
  Mailbox box(1, 20'000);
  const SessionId session = box.open(0);
  std::atomic<bool> stop{false};
  std::atomic<int> accepted{0};
  std::vector<std::thread> senders;
  for (int i = 0; i < 3; ++i)
    senders.emplace_back([&] {
      const std::array<std::byte, 100> bytes{};
      while (!stop.load()) accepted += box.send(session, bytes).is_ok() ? 1 : 0;
    });
  int taken = 0;
  Command command;
  while (taken < 30'000) {
    std::uint64_t held = 0;
    while (box.take(command)) {
      held += command.bytes.size() + kMessageOverhead;
      ++taken;
      ASSERT_LE(held, 20'000U);
      if (held + 164 > 20'000) break;
    }
    box.release(session, held);
  }
  stop.store(true);
  for (auto& thread : senders) thread.join();
  while (box.take(command)) ++taken;
  EXPECT_EQ(taken, accepted.load());
}

TEST(ControlContext, AWildcardIsReplacedByWhatWasSeen) {
  EXPECT_EQ(reachable_address("0.0.0.0:4000", "10.0.0.7:51234"), "10.0.0.7:4000");
  EXPECT_EQ(reachable_address("[::]:4000", "[fd00::7]:51234"), "[fd00::7]:4000");
  EXPECT_EQ(reachable_address("10.1.1.1:4000", "10.0.0.7:51234"), "10.1.1.1:4000");
  EXPECT_TRUE(looks_loopback("127.0.0.1:1") && looks_loopback("[::1]:1") && looks_loopback("localhost:1"));
  EXPECT_FALSE(looks_loopback("10.0.0.7:1"));
}

}  // namespace
}  // namespace fairway::control
