#include "engine/transfers/transfers.h"

#include <algorithm>

#include "transferring.h"

namespace fairway::engine {
namespace {

TEST_F(Transferring, AWriteCompletesWithItsLastSlice) {
  const std::uint32_t slot = begin(4096);
  EXPECT_TRUE(transfers.has_work());
  pump();
  EXPECT_FALSE(transfers.has_work());
  ASSERT_FALSE(wire().posted.empty());
  EXPECT_TRUE(done.empty());
  all_done();
  EXPECT_EQ(done, std::vector{slot});
  EXPECT_EQ(status_of(slot).code(), ErrorCode::ok);
  EXPECT_EQ(peer.table[slot].completion.bytes, 4096u);
  EXPECT_TRUE(transfers.empty());
  EXPECT_EQ(links.out(), 0u);
}

TEST_F(Transferring, WhatLiesOutsideItsRegionIsRefusedBeforeItIsPosted) {
  const std::uint32_t slot = begin(4096, {}, mine.size() - 8);
  pump();
  EXPECT_TRUE(wire().posted.empty());
  EXPECT_EQ(status_of(slot).code(), ErrorCode::out_of_range);
  EXPECT_EQ(done, std::vector{slot});
}

TEST_F(Transferring, AFailedTransferCompletesOnlyWhenNoTransportHoldsItsSlices) {
  const std::uint32_t slot = begin(4096);
  pump();
  EXPECT_FALSE(transfers.stop(slot, {ErrorCode::cancelled, "by its user"}));
  EXPECT_EQ(wire().cancelled, wire().posted);
  EXPECT_TRUE(done.empty());
  for (const transport::SliceToken token : std::exchange(wire().posted, {}))
    event(token, Status(ErrorCode::cancelled, "asked back").with_effect(Effect::not_applied));
  EXPECT_EQ(done, std::vector{slot});
  EXPECT_EQ(status_of(slot).code(), ErrorCode::cancelled);
}

TEST_F(Transferring, ASliceThatWasNotTakenIsPostedAgain) {
  wire().takes = 0;
  const std::uint32_t slot = begin(64);
  pump();
  EXPECT_TRUE(wire().posted.empty());
  EXPECT_TRUE(transfers.has_work());
  wire().takes = 64;
  links[0].full = false;
  pump();
  EXPECT_EQ(wire().posted.size(), 1u);
  all_done();
  EXPECT_EQ(done, std::vector{slot});
  EXPECT_EQ(peer.table[slot].bytes_posted, 64u);
}

TEST_F(Transferring, AWriteMovesWhenItsLinkIsClosedOnBothEnds) {
  const std::uint32_t slot = begin(64);
  pump();
  const auto token = std::exchange(wire().posted, {}).at(0);
  event(token, Status(ErrorCode::link_failed, "it broke"));
  EXPECT_EQ(wire().fenced.size(), 1u);
  transfers.epoch_closed(0, false);  // late bytes may still land there
  EXPECT_FALSE(transfers.has_work());
  transfers.epoch_closed(0, true);
  EXPECT_TRUE(transfers.has_work());
  EXPECT_TRUE(done.empty());
  EXPECT_EQ(peer.table[slot].retried, 1u);
}

TEST_F(Transferring, ANotificationFollowsTheBytesByARecord) {
  notifier.greeted(4);
  RequestOptions options;
  options.notify.kind = NotifyKind::event;
  options.notify.immediate = 9;
  const std::uint32_t slot = begin(64, options);
  pump();
  EXPECT_FALSE(records.has_work());
  all_done();
  EXPECT_TRUE(records.has_work());
  pump();
  EXPECT_TRUE(done.empty());
  all_done();  // the record's slice
  EXPECT_EQ(done, std::vector{slot});
}

TEST_F(Transferring, ATransferThatFollowsAnotherWaitsForIt) {
  RequestOptions options;
  options.after = {5, 1};
  const std::uint32_t slot = begin(64, options);
  pump();
  EXPECT_TRUE(wire().posted.empty());
  transfers.dependency_ended(slot, true);
  pump();
  EXPECT_EQ(wire().posted.size(), 1u);
  first_failed = true;
  const std::uint32_t other = begin(64, options);
  EXPECT_EQ(status_of(other).code(), ErrorCode::dependency_failed);
}

TEST_F(Transferring, ADeadlineEndsWhatIsNotDone) {
  wire().takes = 0;
  RequestOptions options;
  options.deadline = std::chrono::microseconds(1);
  const std::uint32_t slot = begin(64, options);
  pump();
  EXPECT_EQ(transfers.run_timers(peer.time), peer.time + 5);
  EXPECT_EQ(transfers.run_timers(peer.time + 5), kNever);
  EXPECT_EQ(status_of(slot).code(), ErrorCode::deadline_exceeded);
}

TEST_F(Transferring, ADeadlineThatHasPassedEndsATransferBeforeItBegins) {
  RequestOptions options;
  options.deadline = Timeout(0);
  const std::uint32_t slot = begin(64, options);
  EXPECT_EQ(status_of(slot).code(), ErrorCode::deadline_exceeded);
  pump();
  EXPECT_TRUE(wire().posted.empty());
}

TEST_F(Transferring, WhenThePeerIsGoneAllItsTransfersEndWithTheirSlices) {
  const std::uint32_t posted = begin(64);
  pump();
  peer.down = true;
  transfers.peer_gone();
  transfers.fail_all({ErrorCode::peer_dead, "it has left"});
  EXPECT_TRUE(done.empty());
  all_done();
  EXPECT_EQ(done, std::vector{posted});
  const std::uint32_t late = begin(64);
  EXPECT_EQ(status_of(late).code(), ErrorCode::peer_dead);
  EXPECT_TRUE(transfers.empty());
}

TEST_F(Transferring, AWriteIsOverOnceItsBytesAreVisible) {
  wire().port().capabilities.visible_when_done = false;
  const std::uint32_t slot = begin(64);
  pump();
  all_done();
  EXPECT_TRUE(done.empty());
  EXPECT_EQ(peer.table[slot].phase, Phase::flushing);
  pump();
  ASSERT_EQ(wire().slices_posted.size(), 2u);
  EXPECT_EQ(wire().slices_posted[1].op, transport::Op::message);
}

TEST_F(TransferringByTwo, APieceOfABrokenLinkMovesToAnother) {
  const std::uint32_t slot = begin(64);
  pump();
  ASSERT_EQ(wire().posted.size(), 1u);
  raise(1);
  event(std::exchange(wire().posted, {})[0], Status(ErrorCode::link_failed, "it broke"));
  pump();
  EXPECT_TRUE(wire(1).posted.empty());
  transfers.epoch_closed(0, true);
  pump();
  ASSERT_EQ(wire(1).posted.size(), 1u);
  EXPECT_EQ(wire(1).slices_posted[0].length, 64u);
  all_done(1);
  EXPECT_EQ(done, std::vector{slot});
  EXPECT_EQ(peer.table[slot].bytes_done, 64u);
}

// It takes no slice so long: the same bytes are cut anew.
TEST_F(TransferringByTwo, APieceIsCutAnewForALinkThatTakesLess) {
  wire(1).port().capabilities.max_slice_bytes = 1000;
  const std::uint32_t slot = begin(2500);
  pump();
  raise(1);
  event(std::exchange(wire().posted, {}).at(0), Status(ErrorCode::link_failed, "it broke"));
  transfers.epoch_closed(0, true);
  for (int i = 0; i < 4; ++i) pump();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> cut;
  for (const transport::Slice& slice : wire(1).slices_posted) cut.emplace_back(slice.remote_offset, slice.length);
  std::sort(cut.begin(), cut.end());
  EXPECT_EQ(cut, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 1000}, {1000, 1000}, {2000, 500}}));
  EXPECT_EQ(peer.table[slot].pieces_out, 3u);
  all_done(1);
  EXPECT_EQ(done, std::vector{slot});
}

TEST_F(Transferring, AnAtomicInFlightOnALinkThatBrokeIsNeverRepeated) {
  wire().port().capabilities.operations |= static_cast<transport::Bits>(transport::Op::fetch_add);
  Request request;
  request.operation = Operation::fetch_add;
  request.target = {remote, 8};
  request.operand = 1;
  const std::uint32_t slot = start(request);
  pump();
  event(std::exchange(wire().posted, {}).at(0), Status(ErrorCode::link_failed, "it broke"));
  transfers.epoch_closed(0, true);
  EXPECT_EQ(done, std::vector{slot});
  EXPECT_EQ(status_of(slot).effect(), Effect::unknown);
  EXPECT_FALSE(transfers.has_work());
}

TEST_F(Transferring, OneOfHigherPriorityGoesFirst) {
  RequestOptions urgent;
  urgent.priority = Priority::urgent;
  (void)begin(64);
  (void)begin(128, urgent);
  pump();
  ASSERT_EQ(wire().slices_posted.size(), 2u);
  EXPECT_EQ(wire().slices_posted[0].length, 128u);
}

// A send of three pieces whose receive was told ahead.
struct SendingAhead : Transferring {
  explicit SendingAhead(std::size_t wires = 1, std::uint64_t bytes = 150 * 1024) : Transferring(wires) {
    wire().port().capabilities.max_slice_bytes = 64 * 1024;
    if (wires > 1) {
      wire().port().capabilities.operations |= static_cast<transport::Bits>(transport::Op::write_immediate);
      wire().port().capabilities.ordered = true;
    }
    windows.there = remote;
    matcher.greeted(4096, 256);
    Request request;
    request.operation = Operation::send;
    request.peer = FakePeer::kId;
    request.layout = Extent{{local, 0, bytes}, {}};
    told(first);
    send = start(request);
    pump();
    for (const transport::SliceToken token : std::exchange(wire().posted, {}))
      (slices[token].use == SliceUse::data ? pieces : said).push_back(token);
    for (const transport::SliceToken token : said) event(token);
  }
  static std::vector<std::byte> window(std::uint64_t bytes) {
    Description window;
    window.incarnation = 1;
    window.region = {5, 1};
    window.size_bytes = bytes;
    window.access = Access::write;
    return format_description(window);
  }
  void told(TransferId receive) {
    const std::vector<std::byte> described = window(1 << 20);
    matcher.on_receive_posted(number++, {0, receive, 0, {described}});
  }
  void clear(TransferId receive) {
    const std::vector<std::byte> described = window(150 * 1024);
    matcher.on_send_clear({peer.table.id(send), receive, {described}});
  }
  // The records that are on their way, as their types; they arrive.
  std::vector<RecordType> records_sent() {
    std::vector<RecordType> types;
    pump();
    for (const transport::SliceToken token : std::exchange(wire().posted, {})) {
      if (slices[token].use == SliceUse::data) {
        pieces.push_back(token);
        continue;
      }
      types.push_back(peer.pool[slices[token].owner].type());
      event(token);
    }
    return types;
  }
  static Status refused() { return Status(ErrorCode::revoked, "the region is revoked"); }
  const TransferId first{9, 1}, second{9, 2};
  std::uint32_t send = 0, number = 3;
  std::vector<transport::SliceToken> pieces, said;
};

TEST_F(SendingAhead, WaitsForAnotherReceiveOnceNothingIsOnItsWayToTheOneThatEnded) {
  ASSERT_EQ(pieces.size(), 3u);
  event(pieces[1], refused());
  event(pieces[0]);
  clear(second);  // two have ended
  EXPECT_FALSE(transfers.has_work());
  event(pieces[2], refused());
  pieces.clear();
  EXPECT_TRUE(records_sent().empty());
  ASSERT_EQ(pieces.size(), 3u);  // all bytes again
  EXPECT_TRUE(done.empty());
  for (const transport::SliceToken token : pieces) event(token);
  EXPECT_EQ(records_sent(), std::vector{RecordType::send_written});
  matcher.on_send_done({peer.table.id(send), ErrorCode::ok, 64});
  EXPECT_EQ(done, std::vector{send});
  EXPECT_TRUE(status_of(send));
}

TEST_F(SendingAhead, NobodyIsToldThatItsBytesAreThereWhenSomeWereRefused) {
  for (const transport::SliceToken token : std::exchange(pieces, {}))
    event(token, token % 2 == 0 ? Status() : refused());
  EXPECT_TRUE(records_sent().empty());
  EXPECT_TRUE(done.empty());
  clear(second);
  (void)records_sent();
  EXPECT_EQ(pieces.size(), 3u);
}

// After a rendezvous: what says why comes by a record, which the refusal may overtake.
TEST_F(SendingAhead, ToAReceiveThatEndsAfterItWasFoundFailsWithItsError) {
  for (const transport::SliceToken token : std::exchange(pieces, {})) event(token, refused());
  clear(second);
  EXPECT_TRUE(records_sent().empty());
  for (const transport::SliceToken token : std::exchange(pieces, {})) event(token, refused());
  EXPECT_TRUE(records_sent().empty());
  EXPECT_TRUE(done.empty());
  matcher.on_send_done({peer.table.id(send), ErrorCode::cancelled, 64});
  ASSERT_EQ(done, std::vector{send});
  EXPECT_EQ(status_of(send).code(), ErrorCode::cancelled);
}

// One piece, whose immediate says that the message is there. The link of the cable is not up yet.
struct SendingAheadByTwo : SendingAhead {
  SendingAheadByTwo() : SendingAhead(2, 1000) {}
  void breaks() {
    event(pieces.at(0), Status(ErrorCode::link_failed, "it broke"));
    pieces.clear();
    raise(1);
  }
};

TEST_F(SendingAheadByTwo, NeedsNoRecordToSayThatItIsWritten) {
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(slices[pieces[0]].op, transport::Op::write_immediate);
  event(pieces[0]);
  EXPECT_TRUE(records_sent().empty());
  matcher.on_send_done({peer.table.id(send), ErrorCode::ok, 64});
  EXPECT_EQ(done, std::vector{send});
}

TEST_F(SendingAheadByTwo, IsWrittenOverAnotherLinkAndSaysSoByARecord) {
  breaks();
  transfers.epoch_closed(0, true);
  pump();
  ASSERT_EQ(wire(1).posted.size(), 1u);
  EXPECT_EQ(slices[wire(1).posted[0]].op, transport::Op::write);
  all_done(1);
  pump();
  ASSERT_EQ(wire(1).posted.size(), 1u);
  EXPECT_EQ(peer.pool[slices[wire(1).posted[0]].owner].type(), RecordType::send_written);
  all_done(1);
  EXPECT_TRUE(done.empty());
  matcher.on_send_done({peer.table.id(send), ErrorCode::ok, 64});
  EXPECT_EQ(done, std::vector{send});
}

TEST_F(SendingAheadByTwo, ThatArrivedBeforeItsLinkBrokeIsNotWrittenAgain) {
  breaks();
  links[0].immediates_there = 1;
  transfers.epoch_closed(0, true);
  pump();
  EXPECT_TRUE(wire(1).posted.empty());
  matcher.on_send_done({peer.table.id(send), ErrorCode::ok, 64});
  EXPECT_EQ(done, std::vector{send});
}

TEST_F(SendingAhead, FailsWhenItIsItsOwnMemoryThatIsGone) {
  (void)peer.local.revoke(local);
  for (const transport::SliceToken token : pieces) event(token, refused());
  ASSERT_EQ(done, std::vector{send});
  EXPECT_FALSE(status_of(send));
}

}  // namespace
}  // namespace fairway::engine
