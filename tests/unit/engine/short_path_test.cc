#include "engine/transfers/short_path.h"

#include "quick_wire.h"
#include "transferring.h"

namespace fairway::engine {
namespace {

struct Short : Transferring {
  Short() : Transferring(one_quick()) {}
  QuickWire& quick() { return static_cast<QuickWire&>(*transports[0]); }
  // The ordinary path, which the routes remember.
  void once(Operation operation = Operation::write) {
    Request request = write(64);
    request.operation = operation;
    (void)start(request);
    pump();
    all_done();
    ASSERT_EQ(status_of(done.back()).code(), ErrorCode::ok);
  }
  bool move(std::uint64_t length = 64, RequestOptions options = {}, std::uint64_t at = 0,
            Operation operation = Operation::write) {
    return transfers.move_at_once(operation, {{local, at, length}, {remote, at}}, options, past);
  }
  PeerMetrics metrics() {
    PeerMetrics out;
    transfers.collect(out);
    return out;
  }
  AtOnceTable<>::Past past;
};

TEST_F(Short, AWriteGoesTheOrdinaryWayOnceAndThenAtOnce) {
  EXPECT_FALSE(move()) << "its route is not known yet";
  once();
  mine[7] = std::byte{99};
  ASSERT_TRUE(move(8));
  EXPECT_EQ(quick().landed[7], std::byte{99});
  EXPECT_EQ(quick().moves.back().length, 8u);
  EXPECT_EQ(quick().moves.back().link, links[0].id);
  EXPECT_EQ(past.bytes, 8u);
  EXPECT_EQ(past.peer, FakePeer::kId);
  EXPECT_TRUE(transfers.empty());
  EXPECT_EQ(links.out(), 0u);
  EXPECT_TRUE(wire().posted.empty()) << "and nothing was posted";
}

TEST_F(Short, ItIsCountedAsAnyOther) {
  once();
  const PeerMetrics before = metrics();
  const std::uint64_t before_slices = links[0].slices, before_bytes = links[0].bytes_out;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(move(8));
  const PeerMetrics after = metrics();
  EXPECT_EQ(after.transfers_ok, before.transfers_ok + 100);
  EXPECT_EQ(after.bytes, before.bytes + 800);
  EXPECT_EQ(after.latency.count, before.latency.count + 100);
  EXPECT_EQ(links[0].slices, before_slices + 100);
  EXPECT_EQ(links[0].bytes_out, before_bytes + 800);
  EXPECT_EQ(clock.time, 4u) << "of 64 one reads the clock, twice";
}

TEST_F(Short, NothingOvertakesWhatWaitsToBePosted) {
  once();
  wire().takes = 0;
  const std::uint32_t waits = begin(64);
  pump();
  ASSERT_TRUE(transfers.has_work());
  EXPECT_FALSE(move());
  EXPECT_TRUE(quick().moves.empty());
  wire().takes = 64;
  links[0].full = false;
  pump();
  all_done();
  EXPECT_EQ(done.back(), waits);
  EXPECT_TRUE(move());
}

TEST_F(Short, ACounterRidesAndIsCountedForFailover) {
  once();
  RequestOptions counts;
  counts.notify = notify_counter(5);
  const std::uint64_t posted = links[0].immediates_posted;
  ASSERT_TRUE(move(8, counts));
  EXPECT_EQ(quick().moves.back().op, transport::Op::write_immediate);
  EXPECT_EQ(quick().moves.back().immediate, 5u);
  EXPECT_EQ(links[0].immediates_posted, posted + 1);
}

TEST_F(Short, AnEventRidesWithinItsCredits) {
  once();
  RequestOptions tells;
  tells.notify = notify_event(5);
  EXPECT_FALSE(move(8, tells)) << "the peer has granted none yet";
  notifier.greeted(2);
  ASSERT_TRUE(move(8, tells));
  EXPECT_EQ(quick().moves.back().immediate, kEventBit | kBareEventBit | 5u);
  ASSERT_TRUE(move(8, tells));
  EXPECT_FALSE(move(8, tells));
  notifier.on_credit(1);
  EXPECT_TRUE(move(8, tells));
  quick().answer = transport::AtOnce::later;
  notifier.on_credit(2);
  EXPECT_FALSE(move(8, tells));
  quick().answer = transport::AtOnce::done;
  EXPECT_TRUE(move(8, tells)) << "what was not done cost no credit";
}

struct ShortSend : Short {
  ShortSend() { matcher.greeted(4096, 512); }
  std::uint32_t message(Operation operation, std::uint64_t length = 8) {
    Request request;
    request.operation = operation;
    request.tag = 3;
    request.layout = Extent{{local, 0, length}, {}};
    return peer.begin(request);
  }
  bool start_now(std::uint32_t slot) {
    if (!transfers.may_start_now(peer.table[slot])) return false;
    transfers.start_now(slot);
    return true;
  }
};

TEST_F(ShortSend, AMessageIsHandedOverAndCompletesWithItsAnswer) {
  const std::uint32_t slot = message(Operation::send);
  ASSERT_TRUE(start_now(slot));
  ASSERT_EQ(quick().sent.size(), 1u);
  const auto header = decode_header(quick().sent[0]);
  ASSERT_TRUE(header && header->type == RecordType::send_eager);
  EXPECT_EQ(decode<record::SendEager>(header->body)->payload.bytes.size(), 8u);
  EXPECT_TRUE(done.empty()) << "no receive has it";
  EXPECT_FALSE(transfers.has_work());
  matcher.on_send_done({peer.table.id(slot), ErrorCode::ok, 64 + 8});
  ASSERT_EQ(done, std::vector{slot});
  EXPECT_TRUE(status_of(slot));
}

TEST_F(ShortSend, OneThatWasNotTimedCountsAsTheLastThatWas) {
  const auto ends = [&](Time took) {  // 0: not timed, and it may end before the worker's next step
    const std::uint32_t slot = message(Operation::send);
    ASSERT_TRUE(start_now(slot));
    peer.table[slot].timed = took != 0;
    peer.table[slot].submitted = took != 0 ? peer.time - took : peer.time + 5;
    matcher.on_send_done({peer.table.id(slot), ErrorCode::ok, 64 + 8});
  };
  peer.time += 10'000;
  for (const Time took : {700, 0, 0}) ends(took);
  EXPECT_EQ(metrics().latency.count, 3u);
  EXPECT_GT(metrics().latency.p50_ns, 600u);
  EXPECT_LT(metrics().latency.max_ns, 800u);
  for (const Time took : {7000, 0}) ends(took);
  EXPECT_EQ(metrics().latency.count, 5u);
  EXPECT_LT(metrics().latency.p50_ns, 800u) << "those before count as they did";
  EXPECT_GT(metrics().latency.max_ns, 6000u);
}

// An empty write and one of a byte are the shortest there are: they are no messages all the same.
TEST_F(ShortSend, OneThatWasNotTimedCountsAsTheLastOfItsKindThatWas) {
  const auto ends = [&](Operation operation, std::uint64_t length, Time took) {  // 0: not timed
    const std::uint32_t slot = message(operation, length);
    transfers.adopt(slot);
    peer.table[slot].timed = took != 0;
    peer.table[slot].submitted = peer.time - took;
    transfers.finish(slot, {});
  };
  peer.time += 100'000;
  ends(Operation::send, 8, 700);
  ends(Operation::receive, 8, 700);
  ends(Operation::write, 0, 70'000);
  ends(Operation::write, 1, 70'000);
  for (int i = 0; i < 10; ++i) {
    ends(Operation::send, 8, 0);
    ends(Operation::receive, 8, 0);
  }
  EXPECT_EQ(metrics().latency.count, 24u);
  EXPECT_LT(metrics().latency.p90_ns, 800u) << "22 of 24 are messages";
  EXPECT_GT(metrics().latency.max_ns, 60'000u);
}

TEST_F(ShortSend, AMessageOvertakesNothingThatWaits) {
  once();
  wire().takes = 0;
  const std::uint32_t waits = begin(64);
  pump();
  const std::uint32_t slot = message(Operation::send);
  EXPECT_FALSE(start_now(slot));
  EXPECT_TRUE(quick().sent.empty());
  wire().takes = 64;
  links[0].full = false;
  pump();
  all_done();
  EXPECT_EQ(done.back(), waits);
  quick().answer = transport::AtOnce::later;
  EXPECT_TRUE(start_now(slot)) << "it is begun";
  EXPECT_TRUE(transfers.has_work()) << "and waits to be posted";
  quick().answer = transport::AtOnce::done;
  EXPECT_FALSE(start_now(message(Operation::send))) << "none passes it";
}

TEST_F(ShortSend, AReceiveTakesItsPlaceWhateverWaitsToBePosted) {
  once();
  wire().takes = 0;
  (void)begin(64);
  pump();
  const std::uint32_t first = message(Operation::receive), second = message(Operation::receive);
  EXPECT_TRUE(start_now(first));
  EXPECT_TRUE(start_now(second));
  mine[0] = std::byte{1};
  matcher.on_send_eager({0, 3, {5, 1}, {std::span<const std::byte>(mine).first(8)}});
  ASSERT_EQ(done.back(), first);
}

TEST_F(ShortSend, WithoutALinkNothingIsBegun) {
  links.on_link_down(0, {ErrorCode::link_failed, "cut"});
  EXPECT_FALSE(start_now(message(Operation::send)));
  EXPECT_FALSE(start_now(message(Operation::receive)));
  peer.down = true;
  EXPECT_FALSE(start_now(message(Operation::receive)));
  EXPECT_TRUE(transfers.empty());
}

TEST_F(ShortSend, WhoseMemoryIsGoneFailsAndThePeerHearsNothing) {
  const std::uint32_t slot = message(Operation::send);
  ASSERT_TRUE(peer.local.revoke(local));
  ASSERT_TRUE(start_now(slot));
  EXPECT_TRUE(quick().sent.empty());
  ASSERT_EQ(done, std::vector{slot});
  EXPECT_FALSE(status_of(slot));
}

// ---- writes and reads that the next step posts ----

TEST_F(ShortSend, AWriteWhoseWayIsKnownWaitsOnlyForItsPost) {
  const std::uint32_t first = peer.begin(write(64));
  EXPECT_FALSE(start_now(first)) << "its route is not known yet";
  once();
  const std::uint32_t slot = peer.begin(write(64));
  ASSERT_TRUE(start_now(slot));
  EXPECT_TRUE(wire().posted.empty()) << "a submitter moves no bytes";
  EXPECT_FALSE(transfers.has_work());
  outbox.flush(0);
  ASSERT_EQ(wire().posted.size(), 1u);
  all_done();
  EXPECT_EQ(done.back(), slot);
  EXPECT_TRUE(status_of(slot));
}

TEST_F(ShortSend, AWriteThatFindsNoRoomOrNothingToMoveIsNotBegun) {
  once();
  EXPECT_FALSE(start_now(peer.begin(write(0))));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(start_now(peer.begin(write(64))));  // all that the wire holds
  const std::uint32_t slot = peer.begin(write(64));
  EXPECT_FALSE(start_now(slot));
  outbox.flush(0);
  all_done();
  EXPECT_TRUE(start_now(slot)) << "there is room again";
}

TEST_F(ShortSend, AWriteOvertakesNothingThatWaits) {
  once();
  wire().takes = 0;
  (void)begin(64);
  pump();
  EXPECT_FALSE(start_now(peer.begin(write(64))));
}

TEST_F(ShortSend, AWriteWithAnEventNeedsACreditAndTakesOne) {
  once();
  Request tells = write(8);
  tells.options.notify = notify_event(5);
  EXPECT_FALSE(start_now(peer.begin(tells)));
  notifier.greeted(2);
  ASSERT_TRUE(start_now(peer.begin(tells)));
  EXPECT_TRUE(notifier.has_credit());
  ASSERT_TRUE(start_now(peer.begin(tells)));
  EXPECT_FALSE(notifier.has_credit());
  EXPECT_FALSE(start_now(peer.begin(tells)));
}

TEST_F(ShortSend, AWriteWhoseMemoryIsGoneFails) {
  once();
  const std::uint32_t slot = peer.begin(write(64));
  ASSERT_TRUE(peer.local.revoke(local));
  ASSERT_TRUE(start_now(slot));
  ASSERT_EQ(done.back(), slot);
  EXPECT_FALSE(status_of(slot));
  EXPECT_TRUE(outbox.empty());
}

TEST_F(Short, WithoutALinkThatIsReadyNothingIsDone) {
  once();
  ASSERT_TRUE(move());
  links.on_link_down(0, {ErrorCode::link_failed, "cut"});
  EXPECT_FALSE(move());
  EXPECT_EQ(quick().moves.size(), 1u);
}

TEST_F(Short, APeerThatIsDownGetsNothing) {
  once();
  peer.down = true;
  EXPECT_FALSE(move());
}

TEST_F(Short, WhatIsWrongIsLeftToTheOrdinaryPathWhichSaysWhy) {
  once();
  ASSERT_TRUE(move());
  EXPECT_FALSE(move(64, {}, mine.size() - 8)) << "beyond the end";
  ASSERT_TRUE(peer.local.revoke(local));
  EXPECT_FALSE(move());
  EXPECT_EQ(quick().moves.size(), 1u);
}

TEST_F(Short, AReleasedRegionIsNoneAnyMore) {
  once();
  ASSERT_TRUE(move());
  remotes.release(remote);
  EXPECT_FALSE(move());
}

TEST_F(Short, ATransportThatNeverDoesIsNotAskedAgainInThisEpoch) {
  once();
  quick().answer = transport::AtOnce::later;
  EXPECT_FALSE(move());
  EXPECT_FALSE(move());
  EXPECT_EQ(quick().moves.size(), 2u);
  quick().answer = transport::AtOnce::never;
  EXPECT_FALSE(move());
  EXPECT_FALSE(move());
  EXPECT_EQ(quick().moves.size(), 3u);
}

TEST(ShortPath, TakesSmallPlainRequestsOnly) {
  const Extent small{{{1, 1}, 0, 64}, {{1, 1}, 0}};
  const auto takes = [&](auto change, Operation operation = Operation::write) {
    RequestOptions options;
    change(options);
    return ShortPath::may_take(operation, small, options);
  };
  EXPECT_TRUE(takes([](RequestOptions&) {}));
  EXPECT_TRUE(takes([](RequestOptions&) {}, Operation::read));
  EXPECT_TRUE(takes([](RequestOptions& o) { o.deadline = std::chrono::microseconds(1); }));
  EXPECT_TRUE(takes([](RequestOptions& o) { o.notify = notify_counter(7); }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.notify = notify_counter(7); }, Operation::read));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.notify = notify_counter(kEventBit); }));
  EXPECT_TRUE(takes([](RequestOptions& o) { o.notify = notify_event(7); }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.notify = notify_event(kEventValue + 1); }));
  const std::byte word[4] = {};
  EXPECT_FALSE(takes([&](RequestOptions& o) { o.notify = notify_event(7, word); }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.notify = set_signal({{1, 1}, 0}, 1); }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.after = {1, 1}; }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.checksum = true; }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.start_after = &o; }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.local_completion = true; }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.deadline = Timeout(-1); }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.deadline = Timeout(0); })) << "it has passed";
  EXPECT_FALSE(takes([](RequestOptions& o) { o.deliver = Deliver::to_callback; }));
  EXPECT_FALSE(takes([](RequestOptions& o) { o.priority = static_cast<Priority>(9); }));
  EXPECT_FALSE(takes([](RequestOptions&) {}, Operation::send));
  EXPECT_FALSE(ShortPath::may_take(Operation::write, Extent{{{1, 1}, 0, 4097}, {{1, 1}, 0}}, {}));
  EXPECT_FALSE(ShortPath::may_take(Operation::write, Strided{small, 64, 64, 1}, {}));
}

}  // namespace
}  // namespace fairway::engine
