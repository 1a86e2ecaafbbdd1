#include <gtest/gtest.h>

#include "engine/tables/slices.h"
#include "fake_wire.h"

namespace fairway::engine {
namespace {

struct Outboxes : testing::Test, OutboxOwner {
  void on_untaken(std::uint32_t token) override {
    untaken.push_back(token);
    wire(0).takes = 64;
  }
  Outboxes() {
    transports.push_back(std::make_unique<FakeWire>("wire"));
    transports.push_back(std::make_unique<FakeWire>("cable"));
  }
  FakeWire& wire(std::size_t i) { return static_cast<FakeWire&>(*transports[i]); }
  static transport::Slice slice(std::uint32_t token) {
    transport::Slice slice;
    slice.op = transport::Op::message;
    slice.token = token;
    return slice;
  }
  using Tokens = std::vector<transport::SliceToken>;
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<std::uint32_t> untaken;
};

TEST_F(Outboxes, SlicesGoToTheirTransportInOrderOnceItIsFlushed) {
  Outbox outbox(transports, *this);
  outbox.add(0, slice(1));
  outbox.add(1, slice(2));
  outbox.add(0, slice(3));
  EXPECT_TRUE(wire(0).posted.empty());
  outbox.flush(0);
  EXPECT_EQ(wire(0).posted, (Tokens{1, 3}));
  EXPECT_TRUE(wire(1).posted.empty());
  EXPECT_FALSE(outbox.empty());
  outbox.flush(1);
  EXPECT_TRUE(outbox.empty());
  outbox.flush(0);
  EXPECT_EQ(wire(0).posted, (Tokens{1, 3})) << "posted twice";
  EXPECT_EQ(wire(1).posted, Tokens{2});
  EXPECT_TRUE(untaken.empty());
}

TEST_F(Outboxes, OneThatIsFullIsFlushedAtOnce) {
  Outbox outbox(transports, *this);
  for (std::uint32_t token = 0; token < 200; ++token) outbox.add(0, slice(token));
  outbox.flush(0);
  ASSERT_EQ(wire(0).posted.size(), 200u);
  for (std::uint32_t token = 0; token < 200; ++token) EXPECT_EQ(wire(0).posted[token], token);
  EXPECT_TRUE(untaken.empty());
}

// One link of a transport may be full while another has room.
TEST_F(Outboxes, WhatATransportDoesNotTakeIsToldAndThoseBehindItAreOffered) {
  Outbox outbox(transports, *this);
  wire(0).takes = 0;
  for (const std::uint32_t token : {1u, 2u, 3u}) outbox.add(0, slice(token));
  outbox.flush(0);
  EXPECT_EQ(untaken, std::vector{1u});
  EXPECT_EQ(wire(0).posted, (Tokens{2, 3}));
}

}  // namespace
}  // namespace fairway::engine
