#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "lane_stream.h"

// Where frames lie in the stream, and what their headers say.
namespace fairway::transport::tcp {
namespace {

TEST(TcpLane, PaddingBetweenFramesIsSkippedHoweverMuchOfItComes) {
  Reader reader(kLarge);
  Stream stream;
  for (const std::size_t padding : {1u, 63u, 64u, 5000u}) {
    stream.add(std::vector<std::byte>(padding, kPadding));
    stream.add_blocks(reader.region, 4);
  }
  stream.add(std::vector<std::byte>(10, kPadding));
  ASSERT_TRUE(reader.hears(stream));
  EXPECT_EQ(reader.memory[3 * kBlock], std::byte{0});
  EXPECT_EQ(reader.memory[0], std::byte{3});
  stream.add(std::vector<std::byte>(kHeaderBytes, std::byte{0xfe}));
  EXPECT_FALSE(reader.hears(stream));
}

// A lane that writes from this side's memory to a region of the reader's, and what it sent.
struct Writer {
  explicit Writer(RegionId into) : target(into) {
    auto channel = std::make_unique<Told>(std::vector<std::byte>(), &calls, nullptr, &stream.bytes);
    channel->buffers = &buffers;
    lane = std::make_unique<Lane>(std::move(channel), LinkId{0, 1}, regions, inbox, std::span<const std::byte>());
  }
  bool write(std::uint64_t length) {
    Command command;
    command.slice.op = Op::write;
    command.slice.token = ++token;
    command.slice.local = memory.data();
    command.slice.length = length;
    command.slice.local_handle = handle_of(mine);
    command.local_begin = memory.data();
    command.region = target;
    return lane->post(command);
  }

  RegionTable regions{4};
  CostCounters counters;
  Inbox inbox{counters};
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kLarge, std::byte{0x5c});
  const RegionId mine = *regions.add(memory.data(), memory.size(), MemoryKind::host, Access::none);
  const RegionId target;
  std::vector<std::size_t> calls, buffers;
  Stream stream;
  SliceToken token = 0;
  std::unique_ptr<Lane> lane;
};

// Small frames, tables and large writes in one stream, each alone or with others: where a payload is long enough to
// matter, it begins at a multiple of 64, each call ends at one, and another lane finds the frames.
TEST(TcpLane, LongPayloadsBeginWhereMemoryIsAligned) {
  for (const SliceToken together : {1u, 3u}) {
    Reader reader(2 * kLarge);
    Writer writer(reader.region);
    for (const std::uint64_t length : {8u, 100u, 4096u, 20u, 65536u, 1000u, 1024u, 3u, 5000u}) {
      ASSERT_TRUE(writer.write(length));
      if (writer.token % together == 0) writer.lane->flush();
    }
    EXPECT_TRUE(std::ranges::all_of(writer.calls, [](std::size_t size) { return size % kAlignment == 0; }));
    writer.lane->close();
    const std::vector<std::byte>& bytes = writer.stream.bytes;
    int frames = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      if (bytes[at] == kPadding) {
        ++at;
        continue;
      }
      const auto header = decode(std::span(bytes).subspan(at).first<kHeaderBytes>());
      ASSERT_TRUE(header) << header.status().to_string();
      at += kHeaderBytes;
      EXPECT_TRUE(header->length < 1024 || at % kAlignment == 0) << header->length;
      at += static_cast<std::size_t>(header->payload_bytes());
      ++frames;
    }
    EXPECT_EQ(frames, 9);
    EXPECT_TRUE(reader.hears(writer.stream));
    EXPECT_EQ(std::ranges::count(reader.memory, std::byte{0x5c}), std::ptrdiff_t{kLarge});
  }
}

// The kernel takes one buffer faster than several. A long payload is not copied for that, but what lies around it is.
TEST(TcpLane, FramesLeaveInFewBuffers) {
  Reader reader(2 * kLarge);
  Writer writer(reader.region);
  for (const std::uint64_t length : {4096u, 8u}) ASSERT_TRUE(writer.write(length));
  writer.lane->flush();
  EXPECT_EQ(writer.buffers, std::vector<std::size_t>{1});
  for (const std::uint64_t length : {8u, 65536u, 8u}) ASSERT_TRUE(writer.write(length));
  writer.lane->flush();
  EXPECT_EQ(writer.buffers, (std::vector<std::size_t>{1, 2})) << "the short ones and the header; the payload";
  EXPECT_EQ(writer.counters.copied_bytes.load(), 4096u);
  EXPECT_TRUE(reader.hears(writer.stream));
}

// A message whose bytes came with its header is checked where they are; one that comes in parts, once it is complete.
TEST(TcpLane, AMessageThatWasChangedBreaksTheLaneHoweverItCame) {
  Reader reader(kLarge);
  for (const std::size_t length : {20u, 8000u})
    for (const bool changed : {false, true})
      for (const bool behind_a_large_one : {false, true}) {  // then a read takes 2 KiB
        std::vector<std::byte> body(length, std::byte{5});
        Header header;
        header.type = FrameType::message;
        header.length = length;
        header.immediate = crc32c(0, body);
        if (changed) body.back() ^= std::byte{4};
        Stream stream;
        if (behind_a_large_one) stream.add_large(reader.region);
        stream.add(encode(header));
        stream.add(body);
        EXPECT_EQ(reader.hears(stream), !changed) << length << behind_a_large_one;
      }
}

// The first of two messages is partly sent when one of the peer's comes.
TEST(TcpLane, AnAcknowledgementRidesOnAFrameThatHasItsPlaceButHasNotBegun) {
  RegionTable regions{4};
  CostCounters counters;
  Inbox inbox{counters};
  const std::vector<std::byte> body(20, std::byte{5});
  Header header;
  header.type = FrameType::message;
  header.length = body.size();
  header.immediate = crc32c(0, body);
  Stream said, sent;
  said.add(encode(header));
  said.add(body);
  auto channel = std::make_unique<Told>(said.bytes, nullptr, nullptr, &sent.bytes);
  Told& told = *channel;
  told.room = 10;
  Lane lane(std::move(channel), {0, 1}, regions, inbox, {});
  for (const SliceToken token : {1u, 2u}) {
    Command command;
    command.slice.op = Op::message;
    command.slice.token = token;
    command.slice.local = const_cast<std::byte*>(body.data());
    command.slice.length = body.size();
    ASSERT_TRUE(lane.post(command));
  }
  lane.flush();
  ASSERT_EQ(sent.bytes.size(), 10u);
  std::uint64_t budget = 1 << 20;
  lane.receive(budget);
  told.room = 1 << 20;
  lane.flush();
  ASSERT_EQ(sent.bytes.size() % kAlignment, 0u);
  for (const unsigned acks : {0u, 1u}) {
    const auto found = decode(std::span(sent.bytes).first<kHeaderBytes>());
    ASSERT_TRUE(found) << found.status().to_string();
    EXPECT_EQ(found->acks, acks);
    sent.bytes.erase(sent.bytes.begin(), sent.bytes.begin() + kHeaderBytes + 20);
  }
}

}  // namespace
}  // namespace fairway::transport::tcp
