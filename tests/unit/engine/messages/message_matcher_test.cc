#include <gtest/gtest.h>

#include "engine/messages/matcher.h"
#include "message_sides.h"

namespace fairway::engine {
namespace {

TEST_F(Messages, EagerOnesMatchByTagInTheOrderOfSubmissionHoweverTheirRecordsCome) {
  std::vector<std::vector<std::byte>> sent, received(6, std::vector<std::byte>(8));
  for (int i = 0; i < 6; ++i) sent.emplace_back(8, static_cast<std::byte>(i + 1));
  std::vector<std::uint32_t> sends, receives;
  for (std::size_t i = 0; i < 6; ++i) sends.push_back(left.start(Operation::send, i % 2, sent[i]));
  for (std::size_t i = 0; i < 6; ++i) receives.push_back(right.start(Operation::receive, i % 2, received[i]));
  exchange(true);
  EXPECT_EQ(received, sent);
  for (const std::uint32_t slot : sends) EXPECT_TRUE(left.peer.ended.at(slot));
  for (const std::uint32_t slot : receives) EXPECT_TRUE(right.peer.ended.at(slot));
  EXPECT_TRUE(right.windows.open.empty());
}

TEST_F(Messages, ALongOneIsWrittenIntoAWindowThatClosesWhenItIsComplete) {
  std::vector<std::byte> from(1000), to(2000);
  const std::uint32_t send = left.start(Operation::send, 7, from);
  exchange();
  EXPECT_TRUE(left.peer.turns.empty());  // no receive is there
  const std::uint32_t receive = right.start(Operation::receive, 7, to);
  exchange();
  ASSERT_EQ(left.peer.turns, std::vector{send});
  EXPECT_EQ(right.windows.open.size(), 1u);
  EXPECT_EQ(left.windows.imported, right.windows.open);
  EXPECT_TRUE(right.peer.ended.empty());
  left.matcher.written(send);
  exchange();
  EXPECT_TRUE(left.peer.ended.at(send));
  EXPECT_TRUE(right.peer.ended.at(receive));
  EXPECT_EQ(right.peer.table[receive].bytes_done, from.size());
  EXPECT_TRUE(right.windows.open.empty());
  EXPECT_TRUE(left.windows.imported.empty());
}

TEST_F(Messages, WithLocalCompletionASmallOneIsCompleteOnceItIsCopied) {
  RequestOptions local;
  local.local_completion = true;
  std::vector<std::byte> from(8, std::byte{1}), to(8), large(1000), none;
  const std::uint32_t send = left.start(Operation::send, 1, from, local);
  EXPECT_FALSE(left.peer.ended.contains(send));
  (void)left.matcher.announce();
  EXPECT_TRUE(left.peer.ended.at(send));
  from.assign(8, std::byte{9});  // its memory is free
  const std::uint32_t receive = right.start(Operation::receive, 1, to);
  exchange();
  EXPECT_TRUE(right.peer.ended.at(receive));
  EXPECT_EQ(to, std::vector<std::byte>(8, std::byte{1}));

  const std::uint32_t longer = left.start(Operation::send, 1, large, local);
  exchange();
  EXPECT_FALSE(left.peer.ended.contains(longer));  // it is not copied, so it waits for its receive
  const std::uint32_t truncated = right.start(Operation::receive, 1, to);
  exchange();
  EXPECT_EQ(left.peer.ended.at(longer).code(), ErrorCode::truncated);
  EXPECT_EQ(right.peer.ended.at(truncated).code(), ErrorCode::truncated);

  (void)left.start(Operation::send, 1, from, local);
  exchange();
  const std::uint32_t no_bytes = right.start(Operation::receive, 1, none);
  exchange();
  EXPECT_EQ(right.peer.ended.at(no_bytes).code(), ErrorCode::truncated);  // the sender was told ok before
  EXPECT_TRUE(left.peer.violations.empty() && right.peer.violations.empty());
}

TEST_F(Messages, ASmallOneIsHandedOverWithinTheCallAndCompleteOnceAReceiveHasIt) {
  left.peer.takes_now = right.peer.takes_now = true;
  std::vector<std::byte> from(8, std::byte{1}), to(8);
  const std::uint32_t send = left.start(Operation::send, 1, from);
  (void)left.matcher.announce();
  ASSERT_EQ(left.peer.handed_over.size(), 1u);
  EXPECT_TRUE(left.peer.take_records().empty());
  from.assign(8, std::byte{9});  // it was copied
  exchange();
  EXPECT_FALSE(left.peer.ended.contains(send)) << "the receiver's engine has it, no receive does";
  const std::uint32_t receive = right.start(Operation::receive, 1, to);
  EXPECT_TRUE(right.peer.ended.at(receive));
  EXPECT_EQ(to, std::vector<std::byte>(8, std::byte{1}));
  ASSERT_EQ(right.peer.handed_over.size(), 1u);
  exchange();
  EXPECT_TRUE(left.peer.ended.at(send));
}

TEST_F(Messages, HandedOverOrQueuedTheyMatchInTheOrderOfSubmission) {
  std::vector<std::vector<std::byte>> sent, received(6, std::vector<std::byte>(8));
  for (int i = 0; i < 6; ++i) sent.emplace_back(8, static_cast<std::byte>(i + 1));
  for (std::size_t i = 0; i < 6; ++i) {
    left.peer.takes_now = i % 3 != 1;  // the second waits, and so do those behind it
    (void)left.start(Operation::send, 1, sent[i]);
    (void)left.matcher.announce();
  }
  EXPECT_EQ(left.peer.handed_over.size(), 1u);
  for (std::size_t i = 0; i < 6; ++i) (void)right.start(Operation::receive, 1, received[i]);
  exchange(true);
  EXPECT_EQ(received, sent);
}

TEST_F(Messages, WithLocalCompletionTheyKeepTheLimitOfUnexpectedBytes) {
  RequestOptions local;
  local.local_completion = true;
  std::vector<std::byte> from(kEager), to(kEager);
  const std::size_t most = kUnexpectedLimit / (kEager + 64);
  for (std::size_t i = 0; i < most + 1; ++i) (void)left.start(Operation::send, 1, from, local);
  exchange();
  EXPECT_EQ(left.peer.ended.size(), most);
  (void)right.start(Operation::receive, 1, to);
  exchange();
  EXPECT_EQ(left.peer.ended.size(), most + 1);
  EXPECT_TRUE(right.peer.violations.empty());
}

TEST_F(Messages, BeyondTheLimitOfUnexpectedBytesTheyWait) {
  constexpr std::size_t kBytes = kEager;
  std::vector<std::byte> from(kBytes), to(kBytes);
  const std::size_t most = kUnexpectedLimit / (kBytes + 64);
  std::vector<std::uint32_t> sends;
  for (std::size_t i = 0; i < most + 1; ++i) sends.push_back(left.start(Operation::send, 1, from));
  exchange();
  EXPECT_TRUE(left.matcher.has_work());  // the last is beyond the limit
  EXPECT_TRUE(right.peer.violations.empty());
  (void)right.start(Operation::receive, 1, to);
  exchange();
  EXPECT_FALSE(left.matcher.has_work());
  EXPECT_TRUE(right.peer.violations.empty());
}

TEST_F(Messages, OneThatIsTooLongFailsBothHalves) {
  std::vector<std::byte> from(100), to(99);
  const std::uint32_t send = left.start(Operation::send, 1, from);
  const std::uint32_t receive = right.start(Operation::receive, 1, to);
  exchange();
  EXPECT_EQ(left.peer.ended.at(send).code(), ErrorCode::truncated);
  EXPECT_EQ(right.peer.ended.at(receive).code(), ErrorCode::truncated);
}

TEST_F(Messages, AReceiveThatIsStoppedEndsWhenItsWindowIsClosedAndTellsTheSender) {
  std::vector<std::byte> from(1000), to(1000);
  const std::uint32_t send = left.start(Operation::send, 1, from);
  const std::uint32_t receive = right.start(Operation::receive, 1, to);
  exchange();
  right.peer.fail(receive, {ErrorCode::cancelled, "by its caller"});
  EXPECT_TRUE(right.windows.open.empty());
  ASSERT_EQ(right.windows.closing, std::vector{receive});
  EXPECT_FALSE(right.peer.ended.contains(receive));  // bytes may still land
  exchange();
  EXPECT_EQ(left.peer.ended.at(send).code(), ErrorCode::cancelled);
  right.matcher.window_closed(receive);
  EXPECT_EQ(right.peer.ended.at(receive).code(), ErrorCode::cancelled);
}

TEST_F(Messages, ASendThatIsStoppedAbortsTheReceiveThatItsWindowIsOf) {
  std::vector<std::byte> from(1000), to(1000);
  const std::uint32_t send = left.start(Operation::send, 1, from);
  const std::uint32_t receive = right.start(Operation::receive, 1, to);
  exchange();
  left.peer.fail(send, {ErrorCode::cancelled, "by its caller"});
  exchange();
  ASSERT_EQ(right.windows.closing, std::vector{receive});
  right.matcher.window_closed(receive);
  EXPECT_EQ(right.peer.ended.at(receive).code(), ErrorCode::cancelled);
}

TEST_F(Messages, OneThatWaitsForAnotherTransferKeepsItsPlace) {
  std::vector<std::byte> first(8, std::byte{1}), second(8, std::byte{2}), to_first(8), to_second(8);
  Request request;
  request.operation = Operation::send;
  request.tag = 1;
  request.layout = Extent{{left.peer.add(first), 0, 8}, {}};
  const std::uint32_t waits = left.peer.begin(request);
  left.peer.table[waits].phase = Phase::waiting;
  left.matcher.hold_place(waits);
  (void)left.start(Operation::send, 1, second);
  (void)right.start(Operation::receive, 1, to_first);
  (void)right.start(Operation::receive, 1, to_second);
  exchange();
  EXPECT_TRUE(right.peer.ended.empty());
  left.matcher.start(waits);
  exchange();
  EXPECT_EQ(to_first, first);
  EXPECT_EQ(to_second, second);
}

TEST_F(Messages, AReceiveThatEndsWhileItWaitsForAnotherTransferLeavesItsMessageToTheNext) {
  std::vector<std::byte> from(8, std::byte{1}), to(8);
  Request request;
  request.operation = Operation::receive;
  request.tag = 1;
  request.layout = Extent{{right.peer.add(to), 0, 8}, {}};
  const std::uint32_t waits = right.peer.begin(request);
  right.peer.table[waits].phase = Phase::waiting;
  right.matcher.hold_place(waits);
  const std::uint32_t next = right.start(Operation::receive, 1, to);
  (void)left.start(Operation::send, 1, from);
  exchange();
  EXPECT_TRUE(right.peer.ended.empty());
  right.peer.fail(waits, {ErrorCode::dependency_failed, "the transfer named in `after` failed"});
  exchange();
  EXPECT_TRUE(right.peer.ended.at(next));
  EXPECT_EQ(to, from);
}

TEST_F(Messages, APeerThatSendsMoreThanTheLimitOrANumberTwiceIsRefused) {
  const std::vector<std::byte> payload(kEager);
  for (std::uint32_t i = 0; i <= kUnexpectedLimit / (kEager + 64); ++i)
    right.matcher.on_send_eager({i, 1, {i, 1}, {payload}});
  ASSERT_EQ(right.peer.violations.size(), 1u);
  EXPECT_NE(right.peer.violations[0].find("limit"), std::string::npos);
  left.matcher.on_send_announce({5, 1, {1, 1}, 100});
  left.matcher.on_send_announce({5, 1, {2, 1}, 100});
  ASSERT_EQ(left.peer.violations.size(), 1u);
  EXPECT_NE(left.peer.violations[0].find("out of order"), std::string::npos);
}

}  // namespace
}  // namespace fairway::engine
