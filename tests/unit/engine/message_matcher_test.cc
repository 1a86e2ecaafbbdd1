#include "engine/message_matcher.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include <gtest/gtest.h>

#include "fake_peer.h"

namespace fairway::engine {
namespace {

constexpr std::uint32_t kRoom = 4096;
constexpr std::size_t kEager = 256;

struct Windows final : MessageMemory {
  Result<RegionId> open_window(const Slice&, std::uint64_t length, std::size_t,
                               std::vector<std::byte>& description) override {
    Description window;
    window.incarnation = 1;
    window.region = {++last, 1};
    window.size_bytes = length;
    window.access = Access::write;
    description = format_description(window);
    open.push_back(window.region);
    return window.region;
  }
  void close_window(RegionId window, std::uint32_t slot) override {
    std::erase(open, window);
    if (slot != kNoSlot) closing.push_back(slot);
  }
  RemoteRegionId import_window(const Description& window, Status&) override {
    imported.push_back(window.region);
    return {window.region.slot, 1};
  }
  void release_window(RemoteRegionId window) override {
    std::erase_if(imported, [&](RegionId region) { return region.slot == window.slot; });
  }

  std::uint32_t last = 0;
  std::vector<RegionId> open, imported;
  std::vector<std::uint32_t> closing;
};

// One side of a session: its records go to the other one when it is told so.
struct MessageSide {
  MessageSide() : matcher(peer, windows, kRoom) {
    matcher.greeted(kRoom, kEager);
    peer.on_fail = [this](std::uint32_t slot) {
      const Transfer& t = peer.table[slot];
      if (t.queued) matcher.remove(slot);
      if (t.rendezvous.announced || t.request.operation == Operation::receive) matcher.stop(slot);
    };
    peer.on_end = [this](std::uint32_t slot) { matcher.ended(peer.table[slot]); };
  }
  std::uint32_t start(Operation operation, std::uint64_t tag, std::vector<std::byte>& memory) {
    Request request;
    request.operation = operation;
    request.tag = tag;
    request.layout = Extent{{peer.add(memory), 0, memory.size()}, {}};
    const std::uint32_t slot = peer.begin(request);
    matcher.start(slot);
    return slot;
  }
  void take(const RecordHeader& r) {
    using namespace record;
    switch (r.type) {
      case RecordType::send_eager: return matcher.on_send_eager(*decode<SendEager>(r.body));
      case RecordType::send_announce: return matcher.on_send_announce(*decode<SendAnnounce>(r.body));
      case RecordType::send_clear: return matcher.on_send_clear(*decode<SendClear>(r.body));
      case RecordType::send_written: return matcher.on_send_written(*decode<SendWritten>(r.body));
      case RecordType::send_abort: return matcher.on_send_abort(*decode<SendAbort>(r.body));
      case RecordType::send_done: return matcher.on_send_done(*decode<SendDone>(r.body));
      default: FAIL() << "no record of a matcher";
    }
  }

  FakePeer peer;
  Windows windows;
  MessageMatcher matcher;
};

struct Messages : testing::Test {
  // Until neither side has anything to say. `backwards`: records overtake each other.
  void exchange(bool backwards = false) {
    for (bool any = true; any;) {
      any = false;
      for (auto [from, to] : {std::pair(&left, &right), std::pair(&right, &left)}) {
        (void)from->matcher.announce();
        auto records = from->peer.take_records();
        if (backwards) std::reverse(records.begin(), records.end());
        for (const std::uint32_t record : records) {
          to->take(from->peer.header(record));
          from->peer.stream.arrived(record);
          any = true;
        }
      }
    }
  }
  MessageSide left, right;
};

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

TEST_F(Messages, WithoutRoomAtTheReceiverWaitAndGoOnWhenItIsFree) {
  constexpr std::size_t kBytes = kEager;
  std::vector<std::byte> from(kBytes), to(kBytes);
  const std::size_t most = kRoom / (kBytes + 64);
  std::vector<std::uint32_t> sends;
  for (std::size_t i = 0; i < most + 1; ++i) sends.push_back(left.start(Operation::send, 1, from));
  exchange();
  EXPECT_TRUE(left.matcher.has_work());  // the last has no room
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

TEST_F(Messages, APeerThatSendsMoreThanItsRoomOrANumberTwiceIsRefused) {
  const std::vector<std::byte> payload(kEager);
  for (std::uint32_t i = 0; i <= kRoom / (kEager + 64); ++i) right.matcher.on_send_eager({i, 1, {i, 1}, {payload}});
  ASSERT_EQ(right.peer.violations.size(), 1u);
  EXPECT_NE(right.peer.violations[0].find("room"), std::string::npos);
  left.matcher.on_send_announce({5, 1, {1, 1}, 100});
  left.matcher.on_send_announce({5, 1, {2, 1}, 100});
  ASSERT_EQ(left.peer.violations.size(), 1u);
  EXPECT_NE(left.peer.violations[0].find("out of order"), std::string::npos);
}

}  // namespace
}  // namespace fairway::engine
