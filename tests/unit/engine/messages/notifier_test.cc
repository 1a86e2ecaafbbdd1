#include "engine/messages/notifier.h"

#include <gtest/gtest.h>

#include "unit/engine/fake_peer.h"

namespace fairway::engine {
namespace {

constexpr std::uint32_t kCredits = 4;

struct Notifying {
  Notifying() : notifier(peer, peer.stream, queue, counters, kCredits) {
    notifier.greeted(kCredits);
    peer.on_end = [this](std::uint32_t slot) {
      notifier.ended(peer.table[slot]);
      if (!peer.ended[slot]) notifier.failed(peer.table[slot]);
    };
  }
  std::uint32_t begin(NotifyKind kind, std::uint32_t immediate, const std::string& message = {}) {
    Request request;
    request.options.notify.kind = kind;
    request.options.notify.immediate = immediate;
    request.options.notify.message = std::as_bytes(std::span(message));
    const std::uint32_t slot = peer.begin(request);
    peer.table[slot].phase = Phase::moving;
    return slot;
  }
  void take(const RecordHeader& r) {
    ASSERT_EQ(peer.stream.accept(r.sequence), RecordStream::Verdict::take);
    using namespace record;
    switch (r.type) {
      case RecordType::event: return notifier.on_event(*decode<Event>(r.body));
      case RecordType::counter: return notifier.on_count(decode<Counter>(r.body)->value);
      case RecordType::credit: return notifier.on_credit(decode<Credit>(r.body)->value);
      case RecordType::event_armed: return notifier.on_event_armed(r.sequence, *decode<EventArmed>(r.body));
      case RecordType::event_set_off: return notifier.on_event_sign(decode<EventSetOff>(r.body)->value, true);
      case RecordType::event_given_up: return notifier.on_event_sign(decode<EventGivenUp>(r.body)->value, false);
      default: FAIL() << "no record of a notifier";
    }
  }
  std::vector<std::uint32_t> polled() {
    std::vector<std::uint32_t> immediates;
    Notification notification;
    while (queue.pop(notification)) immediates.push_back(notification.immediate);
    return immediates;
  }

  FakePeer peer;
  NotificationQueue queue{1, 64};
  CounterTable counters{4};
  Notifier notifier;
};

struct Notifications : testing::Test {
  void carry(Notifying& from, Notifying& to) {
    for (const std::uint32_t record : from.peer.take_records()) {
      to.take(from.peer.header(record));
      const std::uint32_t owner = from.peer.pool[record].owner;
      from.peer.stream.arrived(record);
      if (owner != kNoSlot) from.notifier.record_arrived(owner, record);
    }
  }
  Notifying left, right;
};

// A transport hands over what it still had; the sender was told that it is here.
TEST_F(Notifications, WhatCameBeforeTheEndIsDeliveredAfterIt) {
  right.peer.down = true;
  right.notifier.on_immediate(kEventBit | kBareEventBit | 7);
  right.notifier.on_immediate(9);
  EXPECT_EQ(right.polled(), std::vector<std::uint32_t>{7});
  EXPECT_EQ(right.peer.noticed, 2);
}

TEST_F(Notifications, RideOnWritesOfUpTo256KiB) {
  const std::uint32_t slot = left.begin(NotifyKind::event, 5);
  Transfer& t = left.peer.table[slot];
  t.total = 256 * 1024 + 1;
  EXPECT_FALSE(left.notifier.event_immediate(slot));
  t.total = 256 * 1024;
  EXPECT_EQ(left.notifier.event_immediate(slot), kEventBit | kBareEventBit | 5);
}

TEST_F(Notifications, OfEachKindGoTheirWayOnceTheBytesAreThere) {
  const std::uint32_t none = left.begin(NotifyKind::none, 0), signal = left.begin(NotifyKind::signal, 0);
  const std::uint32_t count = left.begin(NotifyKind::counter, 9), event = left.begin(NotifyKind::event, 5);
  for (const std::uint32_t slot : {none, signal, count, event}) {
    ASSERT_TRUE(left.notifier.take_credit(left.peer.table[slot]));
    left.notifier.notify(slot);
  }
  EXPECT_TRUE(left.peer.ended.contains(none));
  EXPECT_EQ(left.peer.signalled, std::vector{signal});
  EXPECT_FALSE(left.peer.ended.contains(event));  // not before its record has arrived
  carry(left, right);
  EXPECT_TRUE(left.peer.ended.at(count) && left.peer.ended.at(event));
  EXPECT_EQ(right.polled(), std::vector<std::uint32_t>{5});
  EXPECT_EQ(right.counters.read(9), 1u);
  EXPECT_EQ(right.peer.noticed, 2);
}

TEST_F(Notifications, WithoutACreditWaitUntilThePeersUserHasPolled) {
  for (std::uint32_t i = 0; i < kCredits; ++i) {
    const std::uint32_t slot = left.begin(NotifyKind::event, i);
    ASSERT_TRUE(left.notifier.take_credit(left.peer.table[slot]));
    left.notifier.notify(slot);
  }
  Transfer& waits = left.peer.table[left.begin(NotifyKind::event, 9)];
  EXPECT_FALSE(left.notifier.take_credit(waits));
  carry(left, right);
  EXPECT_EQ(right.polled().size(), kCredits);
  EXPECT_FALSE(left.notifier.take_credit(waits));
  right.notifier.consumed(kCredits);
  carry(right, left);
  EXPECT_TRUE(left.notifier.take_credit(waits));
  EXPECT_TRUE(left.peer.violations.empty() && right.peer.violations.empty());
}

// Of two threads that poll, the one that read the count first may say it last.
TEST_F(Notifications, ACountThatIsOvertakenTakesNoCreditBack) {
  for (std::uint32_t i = 0; i < kCredits; ++i) {
    const std::uint32_t slot = left.begin(NotifyKind::event, i);
    ASSERT_TRUE(left.notifier.take_credit(left.peer.table[slot]));
    left.notifier.notify(slot);
  }
  carry(left, right);
  EXPECT_EQ(right.polled().size(), kCredits);
  right.notifier.consumed(kCredits);
  right.notifier.consumed(kCredits - 1);
  carry(right, left);
  for (std::uint32_t i = 0; i < kCredits; ++i) {
    const std::uint32_t slot = left.begin(NotifyKind::event, i);
    ASSERT_TRUE(left.notifier.take_credit(left.peer.table[slot]));
    left.notifier.notify(slot);
  }
  carry(left, right);
  EXPECT_EQ(right.polled().size(), kCredits);
  EXPECT_TRUE(left.peer.violations.empty() && right.peer.violations.empty());
}

TEST_F(Notifications, OfATransferThatFailedBeforeItGiveTheirCreditBack) {
  for (std::uint32_t i = 0; i < 3 * kCredits; ++i) {
    const std::uint32_t slot = left.begin(NotifyKind::event, i);
    ASSERT_TRUE(left.notifier.take_credit(left.peer.table[slot]));
    left.peer.fail(slot, {ErrorCode::cancelled, "by its caller"});
  }
}

TEST_F(Notifications, ThatRideOnTheirWriteAreSetOffByItsImmediateInEitherOrder) {
  for (const bool immediate_first : {false, true}) {
    const std::uint32_t slot = left.begin(NotifyKind::event, 70, "with a message");
    Transfer& t = left.peer.table[slot];
    ASSERT_TRUE(left.notifier.take_credit(t));
    const auto immediate = left.notifier.event_immediate(slot);
    ASSERT_TRUE(immediate);
    t.immediate_sent = true;
    if (immediate_first) right.notifier.on_immediate(*immediate);
    EXPECT_TRUE(right.polled().empty());
    carry(left, right);
    if (!immediate_first) {
      EXPECT_TRUE(right.polled().empty());
      right.notifier.on_immediate(*immediate);
    }
    EXPECT_EQ(right.polled(), std::vector<std::uint32_t>{70});
    left.notifier.notify(slot);
    EXPECT_TRUE(left.peer.ended.at(slot));
  }
}

TEST_F(Notifications, AreSetOffByARecordWhereTheImmediateWasLost) {
  const std::uint32_t slot = left.begin(NotifyKind::event, 70, "with a message");
  ASSERT_TRUE(left.notifier.take_credit(left.peer.table[slot]));
  ASSERT_TRUE(left.notifier.event_immediate(slot));
  carry(left, right);
  left.notifier.notify(slot);
  EXPECT_FALSE(left.peer.ended.contains(slot));
  carry(left, right);
  EXPECT_TRUE(left.peer.ended.at(slot));
  EXPECT_EQ(right.polled(), std::vector<std::uint32_t>{70});
}

TEST_F(Notifications, WhoseWriteFailedAreGivenUpAndTheirCreditsComeBack) {
  for (std::uint32_t i = 0; i < 3 * kCredits; ++i) {
    const std::uint32_t slot = left.begin(NotifyKind::event, 70, "with a message");
    ASSERT_TRUE(left.notifier.take_credit(left.peer.table[slot])) << i;
    ASSERT_TRUE(left.notifier.event_immediate(slot));
    left.peer.fail(slot, {ErrorCode::link_failed, "both links are gone"});
    carry(left, right);
    carry(right, left);
  }
  EXPECT_TRUE(right.polled().empty());
  EXPECT_TRUE(right.peer.violations.empty());
}

TEST_F(Notifications, InDoubtSpendTheirCreditOnlyIfThePeerReceivedThem) {
  std::vector<std::uint64_t> doubtful;
  for (std::uint32_t i = 0; i < kCredits; ++i) {
    const std::uint32_t slot = left.begin(NotifyKind::event, i);
    Transfer& t = left.peer.table[slot];
    ASSERT_TRUE(left.notifier.take_credit(t));
    ASSERT_TRUE(left.notifier.event_immediate(slot));
    t.immediate_sent = true;
    left.notifier.doubt(t, i, doubtful);
  }
  Transfer& next = left.peer.table[left.begin(NotifyKind::event, 9)];
  Transfer& after = left.peer.table[left.begin(NotifyKind::event, 9)];
  EXPECT_FALSE(left.notifier.take_credit(next));
  left.notifier.settle(doubtful, kCredits - 1);  // all but the last
  EXPECT_TRUE(left.notifier.take_credit(next));
  EXPECT_FALSE(left.notifier.take_credit(after));
  EXPECT_TRUE(doubtful.empty());
}

TEST_F(Notifications, OfAPeerThatHasNoCreditOrReturnsTooManyAreRefused) {
  for (std::uint32_t i = 0; i <= kCredits; ++i) right.notifier.on_immediate(kEventBit | kBareEventBit | i);
  ASSERT_EQ(right.peer.violations.size(), 1u);
  EXPECT_EQ(right.polled().size(), kCredits);
  left.notifier.on_credit(1);
  EXPECT_EQ(left.peer.violations.size(), 1u);
  for (std::uint32_t value = 0; value <= 4; ++value) left.notifier.on_count(value);
  EXPECT_EQ(left.peer.violations.size(), 2u);  // a fifth counter
}

}  // namespace
}  // namespace fairway::engine
