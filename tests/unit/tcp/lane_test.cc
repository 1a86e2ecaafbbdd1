#include "transport/tcp/lane.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "lane_stream.h"

namespace fairway::transport::tcp {
namespace {

// A table longer than what is read with its header, and pages enough to be received where they belong.
TEST(TcpLane, BlocksLandByATableThatComesInSeveralReads) {
  for (const std::uint32_t count : {300u, 1024u, 5000u}) {
    Reader reader(std::max(kLarge, count * kBlock));
    Stream stream;
    stream.add_large(reader.region);
    stream.add_blocks(reader.region, count);
    ASSERT_TRUE(reader.hears(stream)) << count;
    for (std::uint32_t i = 0; i < count; ++i)
      ASSERT_EQ(reader.memory[(count - 1 - i) * kBlock + 7], static_cast<std::byte>(i)) << count << ": " << i;
  }
}

TEST(TcpLane, ATableThatWasChangedBreaksTheLaneBeforeABlockLands) {
  Reader reader(kLarge);
  Stream stream;
  stream.add_blocks(reader.region, 1000, 1);
  EXPECT_FALSE(reader.hears(stream));
  EXPECT_TRUE(
      std::all_of(reader.memory.begin(), reader.memory.end(), [](std::byte each) { return each == std::byte{0}; }));
}

// ---- how much is read at once ----

// Each call reads the rest of a payload and the beginning of the next frame, and the last one finds the end by itself.
TEST(TcpLane, TheNextHeaderComesWithTheRestOfThePayloadBeforeIt) {
  Reader reader(kLarge);
  Stream stream;
  for (int i = 0; i < 8; ++i) stream.add_large(reader.region);
  ASSERT_TRUE(reader.hears(stream));
  EXPECT_EQ(reader.reads_with_bytes(), 9);
}

// Of each large write but the first no more than what came with its header is copied.
TEST(TcpLane, LargeWritesAreReceivedInPlaceBetweenSmallOnes) {
  Reader reader(kLarge);
  Stream stream;
  for (int i = 0; i < 10; ++i) {
    stream.add_large(reader.region);
    stream.add_blocks(reader.region, 4);
    stream.add_blocks(reader.region, 1);
  }
  ASSERT_TRUE(reader.hears(stream));
  EXPECT_LE(reader.counters.copied_bytes.load(), kLarge + 10 * std::uint64_t{2048 + 1024});
}

TEST(TcpLane, ManySmallFramesAfterALargeOneTakeFewReads) {
  Reader reader(kLarge);
  Stream stream;
  stream.add_large(reader.region);
  for (int i = 0; i < 60; ++i) stream.add_blocks(reader.region, 15);  // 1,120 bytes each
  ASSERT_TRUE(reader.hears(stream));
  EXPECT_LE(reader.reads_with_bytes(), 5);
}

// ---- what may wait for company ----

struct Waiting : testing::Test {
  // A lane that has heard one frame.
  void hear(const Stream& stream) {
    auto channel = std::make_unique<Told>(stream.bytes, &calls);
    channel->more_announced = told;
    lane = std::make_unique<Lane>(std::move(channel), LinkId{0, 1}, regions, inbox, std::span<const std::byte>());
    std::uint64_t budget = 1 << 20;
    lane->receive(budget);
  }
  bool due() { return lane->due(1, 16); }  // in this poll
  static Stream a_message() {
    const std::vector<std::byte> body(20, std::byte{5});
    Header header;
    header.type = FrameType::message;
    header.length = body.size();
    header.immediate = crc32c(0, body);
    Stream stream;
    stream.add(encode(header));
    stream.add(body);
    return stream;
  }
  bool post(SliceToken token, bool may_coalesce) {
    Command command;
    command.slice.op = Op::message;
    command.slice.token = token;
    command.slice.may_coalesce = may_coalesce;
    command.slice.local = words.data();
    command.slice.length = words.size();
    return lane->post(command);
  }

  RegionTable regions{4};
  CostCounters counters;
  Inbox inbox{counters};
  std::vector<std::byte> words = std::vector<std::byte>(20);
  std::vector<std::size_t> calls;
  bool told = false;  // the socket announces bytes
  std::unique_ptr<Lane> lane;
};

TEST_F(Waiting, TheAnswerAndTheAcknowledgementAreOneCall) {
  hear(a_message());
  EXPECT_TRUE(lane->hold());
  EXPECT_TRUE(lane->hold());
  ASSERT_TRUE(post(1, true));  // told beside it
  EXPECT_TRUE(lane->may_hold());
  ASSERT_TRUE(post(2, false));
  EXPECT_FALSE(lane->may_hold());
  lane->flush();
  EXPECT_EQ(calls, (std::vector<std::size_t>{2 * kAlignment}));  // it rides in a header
}

TEST_F(Waiting, AnAcknowledgementRidesOnTheOnlyFrameAndItsCallEndsAtAPlaceOfTheStream) {
  std::vector<std::byte> sent;
  lane = std::make_unique<Lane>(std::make_unique<Told>(a_message().bytes, &calls, nullptr, &sent), LinkId{0, 1},
                                regions, inbox, std::span<const std::byte>());
  std::uint64_t budget = 1 << 20;
  lane->receive(budget);
  ASSERT_TRUE(post(1, false));
  lane->flush();
  EXPECT_EQ(calls, (std::vector<std::size_t>{kAlignment}));
  const auto header = decode(std::span(sent).first<kHeaderBytes>());
  ASSERT_TRUE(header) << header.status().to_string();
  EXPECT_EQ(header->type, FrameType::message);
  EXPECT_EQ(header->acks, 1u);
  lane->flush();
  EXPECT_EQ(calls.size(), 1u) << "once";
}

TEST_F(Waiting, WithoutAnAnswerItGoesAfterAFewPollsAndKeepsTheWorkerAwakeUntilThen) {
  hear(a_message());
  for (int poll = 0; poll < 2; ++poll) {
    EXPECT_FALSE(due());
    EXPECT_TRUE(lane->hold());
    EXPECT_TRUE(lane->busy());
  }
  EXPECT_TRUE(due());
  EXPECT_FALSE(lane->hold());
  lane->flush();
  EXPECT_EQ(calls, std::vector<std::size_t>{kAlignment});
  EXPECT_FALSE(lane->busy());
}

// The user needs two polls to answer. Then the lane is read even without an announcement: the stream may have ended.
TEST_F(Waiting, ALaneThatWasReadToItsEndRestsForTwoPolls) {
  hear(a_message());
  EXPECT_FALSE(due());
  EXPECT_TRUE(lane->busy());
  EXPECT_FALSE(due());
  EXPECT_TRUE(due());
  EXPECT_TRUE(due());
}

TEST_F(Waiting, ALaneWhoseSocketAnnouncesBytesDoesNotRest) {
  told = true;
  hear(a_message());
  EXPECT_TRUE(due());
}

TEST_F(Waiting, ALaneDoesNotRestWithinAFrame) {
  Stream stream = a_message();
  stream.bytes.pop_back();
  hear(stream);
  EXPECT_TRUE(due());
}

// ---- whether the socket wakes a sleeper ----

struct Waking : Waiting {
  void SetUp() override {
    const Stream one = a_message();
    Stream many;
    for (int i = 0; i < 1000; ++i) many.add(one.bytes);
    auto made = std::make_unique<Told>(many.bytes);
    made->each = one.bytes.size();
    made->wakes = &wakes;
    channel = made.get();
    lane = std::make_unique<Lane>(std::move(made), LinkId{0, 1}, regions, inbox, std::span<const std::byte>());
  }
  void poll(int times) {
    std::array<Event, 8> events;
    for (; times > 0; --times) {
      std::uint64_t budget = 1 << 20;
      inbox.begin_poll();
      if (lane->due(1, 16)) lane->receive(budget);
      lane->flush();
      (void)inbox.take(events);
    }
  }
  Told* channel = nullptr;
  bool wakes = true;
};

TEST_F(Waking, ALaneInUseAsksItsSocketNotToWakeUntilSomebodyWouldSleep) {
  poll(3 * 64);  // it rests for two polls after each frame
  EXPECT_FALSE(wakes);
  (void)lane->prepare_sleep();
  EXPECT_TRUE(wakes);
  poll(3 * 63);
  EXPECT_TRUE(wakes) << "not for each sleep";
  poll(3);
  EXPECT_FALSE(wakes);
}

TEST_F(Waking, WhoNowAndThenSleepsIsAlwaysWoken) {
  for (int i = 0; i < 20; ++i) {
    poll(3 * 60);
    (void)lane->prepare_sleep();
    EXPECT_TRUE(wakes);
  }
}

TEST_F(Waking, ALaneThatIsReadLessOftenAsksToBeWoken) {
  poll(3 * 64);
  EXPECT_FALSE(wakes);
  channel->each = 0;
  poll(15);
  EXPECT_FALSE(wakes);
  poll(10);
  EXPECT_TRUE(wakes);
}

TEST_F(Waking, ASocketThatCannotWakeYetLetsNobodySleep) {
  poll(3 * 64);
  channel->each = 0;
  poll(3);
  channel->refuses = true;
  EXPECT_FALSE(lane->prepare_sleep());
  channel->refuses = false;
  EXPECT_TRUE(lane->prepare_sleep());
}

// A sleeper hears first which of many lanes have bytes, so the others need not be read to find none.
TEST_F(Waking, AfterASleepALaneIsReadOnlyIfItsSocketWasAnnounced) {
  for (const bool hears : {false, true}) {
    channel->each = 0;
    for (int i = 0; !lane->prepare_sleep(); ++i) {
      ASSERT_LT(i, 10);
      poll(1);
    }
    channel->tells_sleepers = hears;
    ASSERT_TRUE(lane->prepare_sleep());
    EXPECT_EQ(lane->due(1, 16), !hears);
    channel->more_announced = true;
    EXPECT_TRUE(lane->due(1, 16));
    channel->more_announced = false;
    if (hears) {
      EXPECT_FALSE(lane->due(1, 16));
    }
    EXPECT_TRUE(lane->due(1, 16)) << "not for long: others announce less";
    channel->each = a_message().bytes.size();
    poll(3);
  }
}

// Acknowledgements are counts, in the order of the requests: a write with an immediate behind a message.
TEST_F(Waiting, OneHeaderAcknowledgesAllThatCameBeforeIt) {
  std::vector<std::byte> memory(kBlock);
  const RegionId region = *regions.add(memory.data(), kBlock, MemoryKind::host, Access::all);
  Header write;
  write.flags = Header::kImmediate;
  write.region = region;
  write.length = kBlock;
  Stream stream = a_message();
  stream.add(encode(write));
  stream.add(std::vector<std::byte>(kBlock, std::byte{1}));
  hear(stream);
  EXPECT_TRUE(lane->hold());
  lane->flush();
  EXPECT_EQ(calls, std::vector<std::size_t>{kAlignment});
  EXPECT_EQ(lane->immediates(), 1u);
}

TEST_F(Waiting, AnAcknowledgementEndsTheOldestMessageAndOneTooManyTheLane) {
  Header taken;
  taken.type = FrameType::taken;
  taken.acks = 1;
  Stream stream;
  stream.add(encode(taken));
  stream.add(encode(taken));
  stream.add(encode(taken));
  lane = std::make_unique<Lane>(std::make_unique<Told>(stream.bytes, &calls), LinkId{0, 1}, regions, inbox,
                                std::span<const std::byte>());
  ASSERT_TRUE(post(7, false));
  ASSERT_TRUE(post(8, false));
  lane->flush();
  std::uint64_t budget = 1 << 20;
  lane->receive(budget);
  std::array<Event, 4> events;
  ASSERT_EQ(inbox.take(events), 3u);
  EXPECT_EQ(events[0].kind, EventKind::done);
  EXPECT_EQ(events[0].token, 7u);
  EXPECT_EQ(events[1].token, 8u);
  EXPECT_EQ(events[2].kind, EventKind::link_down);
}

TEST_F(Waiting, APatientMessageThatIsCancelledIsNotWaitedFor) {
  hear({});
  ASSERT_TRUE(post(1, true));
  lane->cancel(1);
  EXPECT_FALSE(lane->busy());
  ASSERT_TRUE(post(2, false));
  EXPECT_FALSE(lane->may_hold());
}

TEST_F(Waiting, AWriteThatNobodyIsToldOfIsAcknowledgedAtOnce) {
  std::vector<std::byte> memory(kBlock);
  const RegionId region = *regions.add(memory.data(), kBlock, MemoryKind::host, Access::all);
  Header header;
  header.region = region;
  header.length = kBlock;
  Stream stream;
  stream.add(encode(header));
  stream.add(std::vector<std::byte>(kBlock, std::byte{1}));
  hear(stream);
  EXPECT_FALSE(lane->hold());
}

}  // namespace
}  // namespace fairway::transport::tcp
