#pragma once

#include <array>
#include <deque>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/host.h"
#include "unit/transport/planned_ends.h"

// Two machines of planned links, wired to each other in virtual time.
namespace fairway::transport {

using State = PlannedLinks::State;
using Kind = PlannedHandshake::Kind;

constexpr std::uint16_t kVersion = 3;
constexpr PeerIndex kPeer = 5;

struct Side {
  explicit Side(sim::Host& the_host) : host(the_host), links("ends", kVersion, host.runtime(), events, ends) {}

  sim::Host& host;
  EventQueue events;
  Ends ends{events};
  PlannedLinks links;
  std::deque<Bytes> says;      // not yet carried
  std::deque<Event> happened;  // link events, not yet looked at

  // As a transport's poll: what failed is down, what happened is told.
  void poll() {
    links.check_deadlines(host.now());
    Event event;
    while (events.take(std::span(&event, 1)) == 1) {
      if (event.kind == EventKind::exchange) {
        says.emplace_back(event.bytes.begin(), event.bytes.end());
        continue;
      }
      if (event.kind == EventKind::link_down && event.link.epoch != 0)
        if (auto* link = links.find(event.link); link != nullptr && link->state == State::up) links.on_down(*link);
      happened.push_back(event);
    }
    events.begin_poll();
  }
  PlannedLinks::Link& link(std::uint32_t slot = 0) { return links.at(slot); }
  State state(std::uint32_t slot = 0) { return links.at(slot).state; }
  void fail(std::uint32_t slot = 0) {
    ends.fail_end(link(slot), {ErrorCode::link_failed, "ends: pulled"});
    poll();
  }
  void fence(std::uint32_t slot = 0) {
    ends.drop_end(link(slot));
    links.on_fenced(link(slot));
    poll();
  }
  void hear(const PlannedHandshake& message) { hear(encode(message, kVersion)); }
  void hear(std::span<const std::byte> bytes) {
    links.exchange(kPeer, bytes);
    poll();
  }
  Event next() {
    if (happened.empty()) return {};
    const Event event = happened.front();
    happened.pop_front();
    return event;
  }
  Event next_is(EventKind kind) {
    EXPECT_FALSE(happened.empty());
    const Event event = next();
    EXPECT_EQ(event.kind, kind);
    return event;
  }
};

// What a side says next, as its peer reads it.
inline PlannedHandshake read(const Bytes& bytes) {
  const auto message = decode_planned(bytes, kVersion, "ends");
  EXPECT_TRUE(message);
  return message ? *message : PlannedHandshake{};
}

class PlannedLinksTest : public ::testing::Test {
 protected:
  sim::Simulation simulation_{{}};
  Side a_{simulation_.add_host()}, b_{simulation_.add_host()};  // initiator, acceptor

  // Carries one message, and gives it.
  static PlannedHandshake carry(Side& from, Side& to) {
    EXPECT_FALSE(from.says.empty()) << "nothing is said";
    if (from.says.empty()) return {};
    const Bytes bytes = from.says.front();
    from.says.pop_front();
    to.hear(bytes);
    return read(bytes);
  }
  void carry_all() {
    a_.poll();
    b_.poll();
    while (!a_.says.empty() || !b_.says.empty()) {
      if (!a_.says.empty()) carry(a_, b_);
      if (!b_.says.empty()) carry(b_, a_);
    }
  }
  void begin() {
    ASSERT_TRUE(b_.links.connect(kPeer, Role::acceptor));
    ASSERT_TRUE(a_.links.connect(kPeer, Role::initiator));
    a_.poll();
    token_ = read(a_.says.front()).token;
  }
  void connect() {
    begin();
    carry_all();
  }
  // Up on both sides, with nothing left to look at.
  void bring_up() {
    connect();
    ASSERT_EQ(a_.state(), State::up);
    ASSERT_EQ(b_.state(), State::up);
    a_.happened.clear();
    b_.happened.clear();
  }
  void wait(Time time) {
    simulation_.run_until(simulation_.now() + time);
    a_.poll();
    b_.poll();
  }
  // A message of this session.
  PlannedHandshake say(Kind kind, std::uint16_t link = 0, std::uint32_t attempt = 1) {
    PlannedHandshake message;
    message.kind = kind;
    message.token = token_;
    message.link = link;
    message.attempt = attempt;
    if (kind == Kind::plan) message.pairs = {{0, 0}};
    if (kind == Kind::open || kind == Kind::accept) message.bytes.assign(2, std::byte{9});
    if (kind == Kind::hello || kind == Kind::plan) message.bytes.assign(3, std::byte{9});
    return message;
  }

  std::array<std::byte, kPlanTokenBytes> token_{};  // that the initiator drew
};

}  // namespace fairway::transport
