#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "process/engine/soon.h"
#include "support/open_engine.h"

// Whole engines in real processes: who is noticed, when, and under which name. transfers_test.cc moves bytes between
// them.
namespace fairway {
namespace {

using control::ChildProcess;
using Seconds = std::chrono::duration<double>;

EngineOptions options_of(const std::string& name, std::chrono::seconds peer_timeout = std::chrono::seconds(1)) {
  EngineOptions options;
  options.name = name;
  options.job_key = "a job";
  options.peer_timeout = peer_timeout;
  return options;
}

// The next event of that kind; nothing after kSoon.
std::optional<PeerEvent> next(Engine& engine, PeerEvent::Kind kind) {
  std::array<PeerEvent, 1> events;
  while (engine.wait_peer_event(kServed))
    if (engine.poll_peer_events(events) == 1 && events[0].kind == kind) return events[0];
  return std::nullopt;
}

// Says its address, then "down <code>" once its peer is, then waits to be let go.
void child_with(ChildProcess::Line& line, std::chrono::seconds peer_timeout) {
  auto engine = open_engine(options_of("child", peer_timeout));
  if (!engine) return line.write(engine.status().to_string());
  line.write(engine->address());
  const auto down = next(*engine, PeerEvent::Kind::down);
  line.write(down ? std::string(to_string(down->reason.code())) : "nothing");
  line.read();
}

void child_engine(ChildProcess::Line& line) {
  child_with(line, std::chrono::seconds(1));
}

Status meet(Engine& engine, const std::string& address) {
  return engine.connect(address, kSoon).status();
}

TEST(EngineProcess, AKilledPeerIsSeenAtOnceAndNamed) {
  constexpr std::chrono::seconds kBound(10);
  ChildProcess child([&](auto& line) { child_with(line, kBound); });
  const std::string address = child.read();
  auto engine = open_engine(options_of("parent", kBound));
  ASSERT_TRUE(engine) << engine.status().to_string();
  ASSERT_TRUE(meet(*engine, address));
  const auto up = next(*engine, PeerEvent::Kind::up);
  ASSERT_TRUE(up);
  EXPECT_EQ(up->name, "child");
  const auto killed = std::chrono::steady_clock::now();
  child.signal(SIGKILL);
  const auto down = next(*engine, PeerEvent::Kind::down);
  ASSERT_TRUE(down);
  const double took = Seconds(std::chrono::steady_clock::now() - killed).count();
  RecordProperty("milliseconds", std::to_string(took * 1e3));
  EXPECT_LT(took, 5) << "far less than the peer timeout, also on a busy machine: the kernel says so";
  EXPECT_EQ(down->reason.code(), ErrorCode::peer_dead) << down->reason.to_string();
  EXPECT_EQ(down->peer, up->peer);
  EXPECT_FALSE(engine->write(up->peer, Extent{}));
}

TEST(EngineProcess, AFrozenPeerIsDeadWithinTheBoundAndLearnsItOnThaw) {
  ChildProcess child(child_engine);
  const std::string address = child.read();
  auto engine = open_engine(options_of("parent"));
  ASSERT_TRUE(engine) << engine.status().to_string();
  ASSERT_TRUE(meet(*engine, address));
  const auto frozen = std::chrono::steady_clock::now();
  child.signal(SIGSTOP);
  const auto down = next(*engine, PeerEvent::Kind::down);
  ASSERT_TRUE(down);
  const double took = Seconds(std::chrono::steady_clock::now() - frozen).count();
  EXPECT_EQ(down->reason.code(), ErrorCode::peer_dead) << down->reason.to_string();
  EXPECT_GT(took, 0.4);
  EXPECT_LT(took, 2.5);  // on an idle machine 1.1
  child.signal(SIGCONT);
  EXPECT_EQ(child.read(), "stale_incarnation");
  child.write("done");
}

TEST(EngineProcess, AnEngineThatClosesIsSeenToClose) {
  ChildProcess child(child_engine);
  const std::string address = child.read();
  auto engine = open_engine(options_of("parent"));
  ASSERT_TRUE(engine) << engine.status().to_string();
  ASSERT_TRUE(meet(*engine, address));
  engine->close();
  EXPECT_EQ(child.read(), "closed");
  child.write("done");
}

TEST(EngineProcess, ConnectWithoutATransportBetweenProcessesSaysWhichWereTried) {
  ChildProcess child(child_engine);
  const std::string address = child.read();
  EngineOptions options = options_of("parent");
  options.transports = {"loopback"};  // which the child has not
  auto engine = open_engine(options);
  ASSERT_TRUE(engine) << engine.status().to_string();
  const auto peer = engine->connect(address, kSoon);
  EXPECT_EQ(peer.status().code(), ErrorCode::unsupported) << peer.status().to_string();
  EXPECT_NE(peer.status().message().find("transport"), std::string::npos);
  EXPECT_FALSE(peer.status().peer().empty());
}

}  // namespace
}  // namespace fairway
