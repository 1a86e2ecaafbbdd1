#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "control/control.h"
#include "fake_world.h"

namespace fairway::control {

// One control in a FakeWorld and all that it ever told.
class TestEngine final : public Observer {
 public:
  TestEngine(FakeWorld& world, Options options = {}) : world_(world), node(world.add_node()) {
    Runtime runtime = node.runtime();
    auto opened = open_control(options, runtime, *this);
    open_status = opened.status();
    if (opened) control = std::move(opened).value();
  }
  ~TestEngine() override { control.reset(); }

  // Connects and waits for the answer.
  Result<SessionId> connect(const std::string& address, Time timeout = kSecond) {
    const std::uint64_t token = next_token++;
    EXPECT_TRUE(control->connect(address, token, timeout).is_ok());
    EXPECT_TRUE(world_.run_until([&] { return answers.contains(token); }, timeout + kSecond));
    return answers.contains(token) ? answers.at(token) : Status(ErrorCode::timed_out, "no connect_done");
  }
  Result<std::string> resolve(const std::string& name, Time timeout = kSecond) {
    const std::uint64_t token = next_token++;
    EXPECT_TRUE(control->resolve(name, token, timeout).is_ok());
    EXPECT_TRUE(world_.run_until([&] { return resolved.contains(token); }, timeout + kSecond));
    return resolved.contains(token) ? resolved.at(token) : Status(ErrorCode::timed_out, "no resolve_done");
  }
  Status send(SessionId session, const std::string& text) {
    return control->send(session, std::as_bytes(std::span(text.data(), text.size())));
  }

  void session_up(SessionId session, const PeerInfo& peer) override {
    EXPECT_TRUE(up.emplace(session, peer).second) << "a session came up twice";
    last_up = session;
  }
  void session_down(SessionId session, const Status& reason) override {
    EXPECT_EQ(up.erase(session), 1U) << "down without up, or twice";
    down.emplace_back(session, reason);
  }
  void message(SessionId session, std::span<const std::byte> bytes) override {
    EXPECT_TRUE(up.contains(session));
    messages.emplace_back(session, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    if (on_message) on_message(session);
  }
  void connect_done(std::uint64_t token, Result<SessionId> session) override {
    EXPECT_TRUE(answers.emplace(token, session).second) << "connect() answered twice";
    EXPECT_TRUE(!session || up.contains(session.value())) << "answered before it was up";
  }
  void resolve_done(std::uint64_t token, Result<std::string> address) override {
    EXPECT_TRUE(resolved.emplace(token, address).second) << "resolve() answered twice";
  }
  Progress progress() override { return progress_now; }
  void beat(SessionId session, std::uint64_t steps, Time) override { beats.emplace_back(session, steps); }
  void session_writable(SessionId) override { ++writables; }
  void refused(const std::string&, const Status& why) override { refusals.push_back(why); }
  void published(const Status& status) override { publications.push_back(status); }

 private:
  FakeWorld& world_;

 public:
  FakeWorld::Node& node;
  Status open_status;
  std::map<SessionId, PeerInfo> up;
  SessionId last_up = 0;
  std::vector<std::pair<SessionId, Status>> down;
  std::vector<std::pair<SessionId, std::string>> messages;
  std::map<std::uint64_t, Result<SessionId>> answers;
  std::map<std::uint64_t, Result<std::string>> resolved;
  std::vector<Status> refusals;
  std::vector<Status> publications;
  std::size_t writables = 0;
  std::vector<std::pair<SessionId, std::uint64_t>> beats;  // of peers that their caller steps
  Progress progress_now;
  std::function<void(SessionId)> on_message;
  std::uint64_t next_token = 1;
  std::unique_ptr<Control> control;
};

// Two engines with a session between them: a connected.
struct Pair {
  FakeWorld& world;
  TestEngine a;
  TestEngine b;
  SessionId ab = 0;
  SessionId ba = 0;

  explicit Pair(FakeWorld& world_in, const Options& options = {})
      : world(world_in), a(world, options), b(world, options) {
    auto session = a.connect(b.control->address());
    EXPECT_TRUE(session.is_ok()) << session.status().to_string();
    if (!session) return;
    ab = session.value();
    EXPECT_TRUE(world.run_until([&] { return !b.up.empty(); }, kSecond));
    ba = b.last_up;
  }
};

}  // namespace fairway::control
