#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "transport/planned_links.h"

namespace fairway::transport {

using Bytes = std::vector<std::byte>;

// Ends that know whether they exist: whoever uses one that does not, or makes one twice, fails the test.
class Ends final : public PlannedLinks::Maker {
 public:
  explicit Ends(EventQueue& events) : events_(events) {}

  std::vector<PlannedPair> pairs{{0, 0}};  // that the plan has
  Status plan_is{};                        // what the initiator thinks of it
  std::map<std::uint16_t, int> refusals;   // by the link's index: attempts whose end cannot be made
  std::map<std::uint32_t, Bytes> live;     // by slot: what the peer's end said; empty: not connected
  Status failed;                           // why the last one that was up failed
  std::set<std::uint32_t> connecting;      // by slot: those that take their time
  std::set<std::uint32_t> preparing;       // by slot: before that
  std::set<PeerIndex> planned;             // those of whom it was said that they take notes
  std::function<void(PeerIndex)> when_planned = [](PeerIndex) {};
  std::function<void()> on_connect = [] {};
  bool takes_notes = false;
  std::vector<Bytes> notes;

  Bytes describe_devices() override { return Bytes(3, std::byte{0xd0}); }
  Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> theirs) override {
    EXPECT_EQ(theirs.size(), 3u);
    if (pairs.empty()) return Status(ErrorCode::unreachable, "ends: no device meets another");
    return pairs;
  }
  Status check_plan(std::span<const PlannedPair>, std::span<const std::byte> theirs) override {
    EXPECT_EQ(theirs.size(), 3u);
    return plan_is;
  }
  void on_planned(PeerIndex peer) override {
    planned.insert(peer);
    when_planned(peer);
  }
  Result<Bytes> make_end(const PlannedLinks::Link& link) override {
    EXPECT_TRUE(planned.contains(link.peer)) << "too early";
    EXPECT_TRUE(!live.contains(link.id.slot)) << "there is one";
    if (refusals[link.index] > 0) {
      --refusals[link.index];
      return Status(ErrorCode::link_failed, "ends: the device is down");
    }
    live[link.id.slot] = {};
    return Bytes(2, static_cast<std::byte>(link.end_name()));
  }
  Status connect_end(const PlannedLinks::Link& link, std::span<const std::byte> theirs) override {
    on_connect();
    EXPECT_TRUE(live.contains(link.id.slot) && live[link.id.slot].empty()) << "none, or connected already";
    if (theirs.size() != 2) return {ErrorCode::protocol_error, "ends: an end that is none"};
    live[link.id.slot].assign(theirs.begin(), theirs.end());
    return {};
  }
  bool is_preparing(const PlannedLinks::Link& link) override { return preparing.contains(link.id.slot); }
  bool is_connecting(const PlannedLinks::Link& link) override { return connecting.contains(link.id.slot); }
  void drop_end(const PlannedLinks::Link& link) override { live.erase(link.id.slot); }
  void fail_end(const PlannedLinks::Link& link, Status why) override {
    EXPECT_TRUE(live.contains(link.id.slot) && !live[link.id.slot].empty()) << "it never was up";
    failed = why;
    Event& event = events_.add(EventKind::link_down);
    event.link = link.id;
    event.status = std::move(why);
  }
  bool on_note(PeerIndex, std::span<const std::byte> bytes) override {
    if (takes_notes) notes.emplace_back(bytes.begin(), bytes.end());
    return takes_notes;
  }

 private:
  EventQueue& events_;
};

}  // namespace fairway::transport
