#include "engine/messages/record_sender.h"

#include "unit/engine/one_link.h"
#include "unit/engine/quick_wire.h"

namespace fairway::engine {
namespace {

struct RecordsToAPeer : OneLink {
  explicit RecordsToAPeer(WorkerTables::Transports wires = make(2)) : OneLink(std::move(wires)) {}
  std::uint32_t credit(std::uint32_t value, std::uint32_t transfer = kNoSlot) {
    const std::uint32_t index = records.acquire(RecordType::credit);
    encode(peer.pool[index], record::Credit{value});
    records.enqueue(index, transfer);
    return index;
  }
  bool post() {
    routes.refresh();
    const bool any = records.post();
    for (std::uint16_t i = 0; i < transports.size(); ++i) outbox.flush(i);
    return any;
  }
  // What the only slice that was posted since then is.
  std::uint32_t take_posted(std::size_t i = 0) {
    EXPECT_EQ(wire(i).posted.size(), 1u);
    return wire(i).posted.empty() ? kNoToken : std::exchange(wire(i).posted, {})[0];
  }
  std::uint32_t sequence(std::uint32_t token) { return peer.pool[slices[token].owner].sequence; }
};

TEST_F(RecordsToAPeer, GoByALinkThatCarriesThemAndItsTransferIsToldThatTheyArrived) {
  credit(5, 17);
  EXPECT_TRUE(records.has_work());
  EXPECT_TRUE(post());
  EXPECT_FALSE(records.has_work());
  EXPECT_EQ(wire().slices_posted[0].op, transport::Op::message);
  EXPECT_EQ(links[0].in_flight, 1u);
  EXPECT_EQ(records.arrived(take_posted()), 17u);
  EXPECT_EQ(slices.free_count(), SliceTable(64, 8).free_count());
}

TEST_F(RecordsToAPeer, OneThatDidNotArriveGoesAgainUnderItsNumberAndBeforeTheNext) {
  credit(1);
  EXPECT_TRUE(post());
  const std::uint32_t lost = take_posted(), number = sequence(lost);
  credit(2);
  records.send_again(lost);
  EXPECT_TRUE(post());
  ASSERT_EQ(wire().posted.size(), 2u);
  EXPECT_EQ(sequence(wire().posted[0]), number);
  EXPECT_EQ(sequence(wire().posted[1]), number + 1);
}

struct RecordsAtOnce : RecordsToAPeer {
  RecordsAtOnce() : RecordsToAPeer(one_quick()) {}
  QuickWire& quick() { return static_cast<QuickWire&>(*transports[0]); }
  bool now(std::uint32_t value, std::size_t tail = 0) {
    std::array<std::byte, 16> head;
    const std::size_t size = encode(std::span(head), record::Credit{value});
    return records.post_now(std::span(head).first(size), std::vector<std::byte>(tail, std::byte{7}));
  }
};

TEST_F(RecordsAtOnce, AreNumberedWithTheOthersAndHaveArrived) {
  EXPECT_TRUE(now(5, 3));
  ASSERT_EQ(quick().sent.size(), 1u);
  EXPECT_EQ(quick().sent_by, links[0].id);
  const auto header = decode_header(quick().sent[0]);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->sequence, 0u);
  EXPECT_EQ(header->body.size(), sizeof(std::uint32_t) + 3);
  EXPECT_EQ(header->body.back(), std::byte{7});
  EXPECT_EQ(links[0].slices, 1u);
  EXPECT_EQ(links[0].bytes_out, quick().sent[0].size());
  credit(6);
  EXPECT_TRUE(post());
  EXPECT_EQ(sequence(wire().posted[0]), 1u);
  EXPECT_TRUE(now(7)) << "that one is with its link";
  EXPECT_EQ(decode_header(quick().sent[1])->sequence, 2u);
}

TEST_F(RecordsAtOnce, PassNoneThatWaits) {
  links[0].full = true;
  credit(1);
  EXPECT_FALSE(post());
  EXPECT_FALSE(now(2));
  EXPECT_TRUE(quick().sent.empty());
}

TEST_F(RecordsAtOnce, WhatTheLinkDoesNotTakeHasNoNumber) {
  quick().answer = transport::AtOnce::later;
  EXPECT_FALSE(now(1));
  quick().answer = transport::AtOnce::done;
  EXPECT_FALSE(now(1, 1024)) << "no message is that long";
  EXPECT_TRUE(now(1));
  EXPECT_EQ(decode_header(quick().sent[0])->sequence, 0u);
  quick().answer = transport::AtOnce::never;
  EXPECT_FALSE(now(1));
  quick().answer = transport::AtOnce::done;
  EXPECT_FALSE(now(1)) << "not over this epoch";
}

TEST_F(RecordsAtOnce, WithoutALinkThatIsReadyNoneGoes) {
  EXPECT_TRUE(now(1));
  links.on_link_down(0, {ErrorCode::link_failed, "cut"});
  EXPECT_FALSE(now(2));
  EXPECT_EQ(quick().sent.size(), 1u);
}

TEST_F(RecordsToAPeer, WaitForRoomOnALink) {
  links[0].full = true;
  credit(1);
  EXPECT_FALSE(post());
  EXPECT_TRUE(records.has_work());
  links[0].full = false;
  EXPECT_TRUE(post());
}

TEST_F(RecordsToAPeer, AnAnswerMoreThanThePeerMayHaveWaitingEndsItsSession) {
  std::vector<std::uint32_t> answers;
  for (std::uint32_t i = 0; i < RecordSender::kMaxReplies; ++i) {
    answers.push_back(records.acquire(RecordType::reply));
    ASSERT_NE(answers.back(), kNoSlot);
  }
  EXPECT_TRUE(peer.violations.empty());
  EXPECT_NE(records.acquire(RecordType::credit), kNoSlot) << "no answer";
  EXPECT_EQ(records.acquire(RecordType::reply), kNoSlot);
  EXPECT_EQ(peer.violations.size(), 1u);
  encode(peer.pool[answers[0]], record::Reply{});
  records.enqueue(answers[0], kNoSlot);
  EXPECT_TRUE(post());
  (void)records.arrived(take_posted());
  EXPECT_NE(records.acquire(RecordType::reply), kNoSlot) << "one has arrived";
}

TEST_F(RecordsToAPeer, WithoutALinkThatCarriesThemTheSessionEndsAfterTwiceTheBound) {
  wire().port().capabilities.max_message_bytes = 4;
  credit(1);
  EXPECT_FALSE(post());
  const Time began = peer.time;
  EXPECT_EQ(records.run_timer(), began + 2 * kSecond);
  peer.time = began + 2 * kSecond - 1;
  EXPECT_EQ(records.run_timer(), began + 2 * kSecond);
  EXPECT_TRUE(peer.session_end);
  peer.time = began + 2 * kSecond;
  EXPECT_EQ(records.run_timer(), kNever);
  EXPECT_EQ(peer.session_end.code(), ErrorCode::link_failed);
}

TEST_F(RecordsToAPeer, ALinkThatCarriesThemAgainStopsThatClock) {
  wire().port().capabilities.max_message_bytes = 4;
  credit(1);
  EXPECT_FALSE(post());
  raise(1);
  EXPECT_TRUE(post());
  EXPECT_EQ(wire(1).posted.size(), 1u);
  peer.time += 10 * kSecond;
  EXPECT_EQ(records.run_timer(), kNever);
  EXPECT_TRUE(peer.session_end);
}

TEST_F(RecordsToAPeer, ThoseAheadOfAWriteGoByItsLinkIfTheyAreNext) {
  raise(1);
  routes.refresh();
  const std::uint32_t first = credit(1), second = credit(2);
  records.post_ahead(second, 1);
  outbox.flush(1);
  EXPECT_TRUE(wire(1).posted.empty()) << "another is before it";
  records.post_ahead(first, 1);
  outbox.flush(1);
  EXPECT_EQ(slices[take_posted(1)].owner, first);
}

}  // namespace
}  // namespace fairway::engine
