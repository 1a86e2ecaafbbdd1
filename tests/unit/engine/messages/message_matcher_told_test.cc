#include <gtest/gtest.h>

#include "message_sides.h"

namespace fairway::engine {
namespace {

struct Told : Messages {
  Told() { right.windows.tells = true; }
  // What a link does with the bytes of a send that takes its turn: the write, whose immediate it gives.
  std::uint32_t write(std::uint32_t send) {
    std::erase(left.peer.turns, send);
    Transfer& t = left.peer.table[send];
    t.phase = Phase::moving;
    const auto immediate = left.matcher.ending_immediate(send);
    t.immediate_sent = immediate.has_value();
    return immediate.value_or(0) & 0x3fff'ffff;
  }
  static std::vector<std::byte> window() {
    Description window;
    window.incarnation = 1;
    window.region = {5, 1};
    window.size_bytes = 2000;
    window.access = Access::write;
    return format_description(window);
  }
  std::vector<std::byte> from = std::vector<std::byte>(1000), to = std::vector<std::byte>(2000);
};

TEST_F(Told, ItsMessageIsWrittenAtOnceAndItsImmediateCompletesIt) {
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  exchange();
  EXPECT_EQ(right.windows.open.size(), 1u);
  const std::uint32_t send = left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  ASSERT_EQ(left.peer.turns, std::vector{send});  // nothing had to come back first
  const std::uint32_t number = write(send);
  exchange();
  EXPECT_TRUE(right.peer.ended.empty());
  EXPECT_TRUE(right.matcher.on_bytes(number));
  EXPECT_TRUE(right.peer.ended.at(receive));
  EXPECT_EQ(right.peer.table[receive].bytes_done, from.size());
  EXPECT_TRUE(right.windows.open.empty());
  exchange();
  EXPECT_FALSE(left.peer.ended.contains(send));  // its bytes are not acknowledged yet
  left.matcher.written(send);
  EXPECT_TRUE(left.peer.ended.at(send));
  EXPECT_FALSE(right.matcher.on_bytes(number));
  EXPECT_TRUE(left.peer.violations.empty() && right.peer.violations.empty());
}

// The next message is for the receive of any peer before it: it must not be written into the memory of this one.
TEST_F(Told, IsNoneBehindAReceiveOfAnyPeer) {
  std::vector<std::byte> other(2000);
  Request of_any;
  of_any.operation = Operation::receive;
  of_any.tag = 7;
  of_any.layout = Extent{{right.peer.add(other), 0, other.size()}, {}};
  const std::uint32_t first = right.peer.begin(of_any);
  right.any.push(right.all.add({right.peer.table.id(first), 7, {}}));
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  exchange();
  EXPECT_TRUE(right.windows.open.empty());
  (void)left.start(Operation::send, 7, from);
  exchange();
  EXPECT_TRUE(right.any.empty());
  ASSERT_EQ(right.windows.open.size(), 2u) << "it is the first now";
  EXPECT_EQ(right.peer.table[first].rendezvous.window, right.windows.open[0]);
  EXPECT_EQ(right.peer.table[receive].rendezvous.window, right.windows.open[1]);
  EXPECT_TRUE(right.peer.table[receive].rendezvous.told);
}

TEST_F(Told, BytesWithoutAnImmediateCompleteItByARecord) {
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  exchange();
  const std::uint32_t send = left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  left.peer.turns.clear();
  left.matcher.written(send);
  exchange(true);  // the end before the announcement
  EXPECT_TRUE(right.peer.ended.at(receive));
  EXPECT_TRUE(left.peer.ended.at(send));
  EXPECT_EQ(right.peer.table[receive].bytes_done, from.size());
}

TEST_F(Told, OneThatEndsBeforeItsMessageLeavesItToTheNext) {
  const std::uint32_t first = right.start(Operation::receive, 7, to);
  exchange();
  const std::uint32_t send = left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  right.peer.fail(first, {ErrorCode::cancelled, "by its caller"});  // while the bytes are on their way
  ASSERT_EQ(right.windows.closing, std::vector{first});
  right.matcher.window_closed(first);
  (void)write(send);
  exchange();
  EXPECT_TRUE(left.peer.ended.empty());
  EXPECT_TRUE(left.matcher.window_gone(send));  // and nothing else of it is in flight
  left.matcher.written(send);
  EXPECT_TRUE(left.peer.take_records().empty());  // nobody is told that it was written
  const std::uint32_t second = right.start(Operation::receive, 7, to);
  exchange();
  ASSERT_EQ(left.peer.turns, std::vector{send});
  const std::uint32_t number = write(send);
  exchange();
  EXPECT_TRUE(right.matcher.on_bytes(number));
  left.matcher.written(send);
  exchange();
  EXPECT_TRUE(right.peer.ended.at(second));
  EXPECT_TRUE(left.peer.ended.at(send));
  EXPECT_TRUE(right.windows.open.empty());
  EXPECT_TRUE(left.windows.imported.empty());
}

TEST_F(Told, WhoClearsItBeforeTheFirstBytesHaveEndedWaitsForThem) {
  const std::uint32_t first = right.start(Operation::receive, 7, to);
  exchange();
  const std::uint32_t send = left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  (void)write(send);
  right.peer.fail(first, {ErrorCode::cancelled, "by its caller"});
  right.matcher.window_closed(first);
  const std::uint32_t second = right.start(Operation::receive, 7, to);
  exchange();
  EXPECT_TRUE(left.peer.turns.empty());
  left.matcher.written(send);  // they were written in time, for nobody
  ASSERT_EQ(left.peer.turns, std::vector{send});
  const std::uint32_t number = write(send);
  exchange();
  EXPECT_TRUE(right.matcher.on_bytes(number));
  EXPECT_TRUE(right.peer.ended.at(second));
}

TEST_F(Told, ASendThatIsOnItsWayAlreadyIsForItAndNoOther) {
  std::vector<std::byte> small(8, std::byte{1});
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  const std::uint32_t early = left.start(Operation::send, 7, small);
  (void)left.matcher.announce();
  exchange();  // the receive is told while the eager message is on its way
  EXPECT_TRUE(right.peer.ended.at(receive));
  EXPECT_TRUE(left.peer.ended.at(early));
  EXPECT_TRUE(right.windows.open.empty());
  const std::uint32_t late = left.start(Operation::send, 7, from);
  exchange();
  EXPECT_TRUE(left.peer.turns.empty());
  (void)right.start(Operation::receive, 7, to);
  exchange();
  EXPECT_EQ(left.peer.turns, std::vector{late});
  EXPECT_TRUE(left.peer.violations.empty() && right.peer.violations.empty());
}

TEST_F(Told, ASendThatIsStoppedEndsItAlsoWhenTheAbortComesFirst) {
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  exchange();
  const std::uint32_t send = left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  left.peer.fail(send, {ErrorCode::cancelled, "by its caller"});
  exchange(true);
  ASSERT_EQ(right.windows.closing, std::vector{receive});
  right.matcher.window_closed(receive);
  EXPECT_EQ(right.peer.ended.at(receive).code(), ErrorCode::cancelled);
  EXPECT_TRUE(left.windows.imported.empty());
}

TEST_F(Told, ASendThatIsStoppedAfterAnotherReceiveTookItsMessageAbortsThatOne) {
  const std::uint32_t first = right.start(Operation::receive, 7, to);
  exchange();
  const std::uint32_t send = left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  (void)write(send);
  right.peer.fail(first, {ErrorCode::cancelled, "by its caller"});
  right.matcher.window_closed(first);
  const std::uint32_t second = right.start(Operation::receive, 7, to);
  exchange();
  left.peer.fail(send, {ErrorCode::cancelled, "by its caller"});  // its bytes are still on their way to the first
  exchange();
  right.matcher.window_closed(second);
  ASSERT_TRUE(right.peer.ended.contains(second));
  EXPECT_EQ(right.peer.ended.at(second).code(), ErrorCode::cancelled);
  EXPECT_TRUE(left.windows.imported.empty());
}

TEST_F(Told, OneThatEndsEarlyIsFencedAndWithdrawn) {
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  exchange();
  right.peer.fail(receive, {ErrorCode::cancelled, "by its caller"});
  EXPECT_TRUE(right.windows.open.empty());
  EXPECT_FALSE(right.peer.ended.contains(receive));  // bytes may still land
  right.matcher.window_closed(receive);
  EXPECT_EQ(right.peer.ended.at(receive).code(), ErrorCode::cancelled);
  exchange();
  const std::uint32_t send = left.start(Operation::send, 7, from);
  exchange();
  EXPECT_TRUE(left.peer.turns.empty());  // it is announced, and waits for another receive
  EXPECT_FALSE(left.peer.ended.contains(send));
}

TEST_F(Told, WithoutThePeerItsWindowIsClosedAllTheSame) {
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  exchange();
  right.peer.down = true;
  right.peer.fail(receive, {ErrorCode::peer_dead, "it has left"});
  EXPECT_TRUE(right.windows.open.empty());
  EXPECT_EQ(right.windows.closing, std::vector{receive});
  EXPECT_TRUE(right.peer.take_records().empty());
}

TEST_F(Told, OneThatWaitsForAnotherTransferIsToldOnceItStarts) {
  Request request;
  request.operation = Operation::receive;
  request.tag = 7;
  request.layout = Extent{{right.peer.add(to), 0, to.size()}, {}};
  const std::uint32_t waits = right.peer.begin(request);
  right.peer.table[waits].phase = Phase::waiting;
  right.matcher.hold_place(waits);
  (void)right.start(Operation::receive, 7, to);  // behind it, so nobody's yet
  EXPECT_TRUE(right.windows.open.empty());
  right.matcher.start(waits);
  EXPECT_EQ(right.windows.open.size(), 1u);
  exchange();
  (void)left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  const auto records = left.peer.take_records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(decode<record::SendDirect>(left.peer.header(records[0]).body)->receiver, right.peer.table.id(waits));
}

TEST_F(Told, OfTwoTheSendGoesToTheLaterWhateverCameFirst) {
  for (const bool backwards : {false, true}) {
    const std::vector<std::byte> described = window();
    const record::ReceivePosted older{7, {1, 1}, 0, {described}}, newer{7, {2, 1}, 0, {described}};
    MessageSide sender;
    if (!backwards) sender.matcher.on_receive_posted(4, older);
    sender.matcher.on_receive_posted(6, newer);
    if (backwards) sender.matcher.on_receive_posted(4, older);
    (void)sender.start(Operation::send, 7, from);
    (void)sender.matcher.announce();
    const auto records = sender.peer.take_records();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(decode<record::SendDirect>(sender.peer.header(records[0]).body)->receiver, (TransferId{2, 1}));
  }
}

TEST_F(Told, AWithdrawalThatOvertakesItIsKeptForIt) {
  const std::vector<std::byte> described = window();
  left.matcher.on_receive_withdrawn(4, true);
  left.matcher.on_receive_posted(4, {7, {1, 1}, 0, {described}});
  (void)left.start(Operation::send, 7, from);
  (void)left.matcher.announce();
  EXPECT_TRUE(left.peer.turns.empty());
}

TEST_F(Told, OnlyTheFirstOfATagAndNoMoreThanAFewAreTold) {
  std::vector<std::vector<std::byte>> memory(30, std::vector<std::byte>(1000));
  for (std::size_t i = 0; i < 15; ++i) (void)right.start(Operation::receive, i / 2 + 100, memory[i]);
  EXPECT_EQ(right.windows.open.size(), 8u);
  for (std::size_t i = 15; i < 20; ++i) (void)right.start(Operation::receive, i, memory[i]);
  EXPECT_EQ(right.windows.open.size(), 8u);
  exchange();
  EXPECT_TRUE(left.peer.violations.empty());
}

TEST_F(Told, NoneIsWhileMessagesAreShortUntilALongOneComes) {
  std::vector<std::byte> small(8);
  for (int i = 0; i < 16; ++i) {
    (void)left.start(Operation::send, 1, small);
    (void)right.start(Operation::receive, 1, small);
    exchange();
  }
  (void)right.start(Operation::receive, 7, to);
  EXPECT_TRUE(right.windows.open.empty());
  const std::uint32_t send = left.start(Operation::send, 7, from);
  exchange();
  left.matcher.written(send);
  exchange();
  EXPECT_TRUE(left.peer.ended.at(send));
  (void)right.start(Operation::receive, 7, to);
  EXPECT_EQ(right.windows.open.size(), 1u);
}

// The immediate, the record, the announcement before it: in whatever order.
TEST_F(Told, BytesThatComeBeforeTheirTurnAreKept) {
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  right.matcher.on_send_direct(9, {1, 7, {5, 1}, 1000, right.peer.table.id(receive)}, false);
  EXPECT_TRUE(right.matcher.on_bytes(9));
  EXPECT_TRUE(right.peer.ended.empty());
  right.matcher.on_send_eager({0, 3, {4, 1}, {}});  // of another tag, before it in order
  EXPECT_TRUE(right.peer.ended.at(receive));
}

}  // namespace
}  // namespace fairway::engine
