#include "transport/tcp/lane.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "core/crc32c.h"
#include "transport/handles.h"

namespace fairway::transport::tcp {
namespace {

// Gives what is asked for, of bytes that are all there; takes everything, and notes the bytes of each call.
class Told final : public Channel {
 public:
  explicit Told(std::vector<std::byte> says, std::vector<std::size_t>* calls = nullptr)
      : says_(std::move(says)), calls_(calls) {}
  Result<std::size_t> send(std::span<const std::byte> bytes) override {
    if (calls_ != nullptr) calls_->push_back(bytes.size());
    return bytes.size();
  }
  Result<std::size_t> send_pieces(std::span<const std::span<const std::byte>> pieces) override {
    std::size_t size = 0;
    for (const auto& piece : pieces) size += piece.size();
    if (calls_ != nullptr) calls_->push_back(size);
    return size;
  }
  Result<std::size_t> receive(std::span<std::byte> into) override {
    const std::size_t size = std::min(into.size(), says_.size() - at_);
    std::copy_n(says_.begin() + static_cast<std::ptrdiff_t>(at_), size, into.begin());
    at_ += size;
    return size;
  }
  std::string peer_address() const override { return "the test"; }

 private:
  const std::vector<std::byte> says_;
  std::vector<std::size_t>* const calls_;
  std::size_t at_ = 0;
};

constexpr std::uint64_t kLarge = 64 * 1024, kBlock = 64;

struct Stream {
  std::vector<std::byte> bytes;

  void add(std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
  // A write of one piece, so that the lane expects large frames and reads little along with the next header.
  void add_large(RegionId region) {
    Header header;
    header.region = region;
    header.length = kLarge;
    add(encode(header));
    add(std::vector<std::byte>(kLarge, std::byte{0x11}));
  }
  // Block i, full of i, to place count - 1 - i.
  void add_blocks(RegionId region, std::uint32_t count, std::uint64_t flip = 0) {
    std::vector<std::uint64_t> table(count);
    for (std::uint32_t i = 0; i < count; ++i) table[i] = (count - 1 - i) * kBlock;
    Header header;
    header.flags = Header::kTable;
    header.region = region;
    header.length = kBlock;
    header.count = count;
    header.offset = crc32c(0, std::as_bytes(std::span(table))) ^ flip;
    add(encode(header));
    add(std::as_bytes(std::span(table)));
    for (std::uint32_t i = 0; i < count; ++i) add(std::vector<std::byte>(kBlock, static_cast<std::byte>(i)));
  }
};

struct Reader {
  explicit Reader(std::uint64_t size)
      : memory(size), region(*regions.add(memory.data(), size, MemoryKind::host, Access::all)) {}
  // Whether the lane stands after all of it.
  bool hears(const Stream& stream) {
    Counters counters;
    Inbox inbox{counters};
    Lane lane(std::make_unique<Told>(stream.bytes), {0, 1}, regions, inbox, {});
    for (int turn = 0; turn < 100 && !lane.broken(); ++turn) {
      std::uint64_t budget = 1 << 20;
      lane.receive(budget);
      lane.flush();
    }
    const bool stands = !lane.broken();
    lane.close();
    return stands;
  }

  RegionTable regions{4};
  std::vector<std::byte> memory;
  RegionId region;
};

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

// ---- what may wait for company ----

struct Waiting : testing::Test {
  // A lane that has heard one frame.
  void hear(const Stream& stream) {
    lane = std::make_unique<Lane>(std::make_unique<Told>(stream.bytes, &calls), LinkId{0, 1}, regions, inbox,
                                  std::span<const std::byte>());
    std::uint64_t budget = 1 << 20;
    lane->receive(budget);
  }
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
  Counters counters;
  Inbox inbox{counters};
  std::vector<std::byte> words = std::vector<std::byte>(20);
  std::vector<std::size_t> calls;
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
  EXPECT_EQ(calls, (std::vector<std::size_t>{kHeaderBytes + 2 * (kHeaderBytes + 20)}));
}

TEST_F(Waiting, WithoutAnAnswerItGoesAfterAFewPollsAndKeepsTheWorkerAwakeUntilThen) {
  hear(a_message());
  for (int poll = 0; poll < 2; ++poll) {
    EXPECT_TRUE(lane->hold());
    EXPECT_TRUE(lane->busy());
  }
  EXPECT_FALSE(lane->hold());
  lane->flush();
  EXPECT_EQ(calls, std::vector<std::size_t>{kHeaderBytes});
  EXPECT_FALSE(lane->busy());
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
