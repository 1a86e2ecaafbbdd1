#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "lane_stream.h"

// A socket may take any part of what it is given, and the peer may answer what it has before the rest is gone.
namespace fairway::transport::tcp {
namespace {

struct Frame {
  std::size_t begin, end;  // in the stream, without padding
};

std::vector<Frame> frames_of(const std::vector<std::byte>& bytes) {
  std::vector<Frame> found;
  for (std::size_t at = 0; at < bytes.size();) {
    if (bytes[at] == kPadding) {
      ++at;
      continue;
    }
    if (bytes.size() - at < kHeaderBytes) return {};
    const auto header = decode(std::span(bytes).subspan(at).first<kHeaderBytes>());
    if (!header) return {};
    const std::size_t end = at + kHeaderBytes + static_cast<std::size_t>(header->payload_bytes());
    found.push_back({at, end});
    at = end;
  }
  return found;
}

// A lane to a socket that takes some bytes, and then, once the peer has said something, all of them.
struct Halting {
  explicit Halting(std::size_t room) {
    auto channel = std::make_unique<Told>(std::vector<std::byte>(), nullptr, nullptr, &sent);
    socket = channel.get();
    socket->room = room;
    lane = std::make_unique<Lane>(std::move(channel), LinkId{0, 1}, regions, inbox, std::span<const std::byte>());
  }
  bool post(Op op, std::uint64_t length, SliceToken token) {
    Command command;
    command.slice.op = op;
    command.slice.token = token;
    command.slice.local = memory.data();
    command.slice.length = length;
    command.slice.local_handle = handle_of(mine);
    command.local_begin = memory.data();
    command.region = {1, 1};
    return lane->post(command);
  }
  void hear(std::span<const std::byte> bytes) {
    socket->say(bytes);
    std::uint64_t budget = 1 << 20;
    lane->receive(budget);
  }
  // What ended well since the last call.
  std::vector<SliceToken> done() {
    std::array<Event, 8> events;
    inbox.begin_poll();
    std::vector<SliceToken> tokens;
    for (const Event& event : std::span(events).first(inbox.take(events)))
      if (event.kind == EventKind::done) tokens.push_back(event.token);
    return tokens;
  }

  RegionTable regions{4};
  CostCounters counters;
  Inbox inbox{counters};
  std::vector<std::byte> memory = std::vector<std::byte>(8192, std::byte{0x5c});
  const RegionId mine = *regions.add(memory.data(), memory.size(), MemoryKind::host, Access::all);
  std::vector<std::byte> sent;
  Told* socket = nullptr;
  std::unique_ptr<Lane> lane;
};

// The peer's answer to the request that the lane made at the `nth` place of its first slot.
Stream answer(Op op, std::uint64_t length, std::uint32_t nth) {
  Header header;
  Stream stream;
  header.type = FrameType::done;
  header.token = nth << 16;
  if (op == Op::message || op == Op::write_immediate) {
    header.type = FrameType::taken;
    header.acks = 1;
  } else if (op == Op::read) {
    header.type = FrameType::data;
    header.length = length;
  }
  stream.add(encode(header));
  if (op == Op::read) stream.add(std::vector<std::byte>(length, std::byte{1}));
  return stream;
}

struct Kind {
  Op op;
  std::uint64_t length;
};
constexpr std::array kKinds = {Kind{Op::write, 20},    Kind{Op::write, 5000},        Kind{Op::message, 20},
                               Kind{Op::fetch_add, 8}, Kind{Op::write_immediate, 0}, Kind{Op::write_immediate, 2000},
                               Kind{Op::read, 4096}};

// The frame and the padding around it are cut behind each byte. From the last byte of the frame on the peer may answer:
// the request is done then, its place is free, and the next frame begins where the padding ends.
TEST(TcpLane, AnAnswerMayOvertakeThePaddingBehindItsRequest) {
  for (const Kind& kind : kKinds) {
    Halting whole(~std::size_t{0});
    ASSERT_TRUE(whole.post(kind.op, kind.length, 1));
    whole.lane->flush();
    const auto frames = frames_of(whole.sent);
    ASSERT_EQ(frames.size(), 1u);
    ASSERT_LT(frames[0].end, whole.sent.size()) << "no padding behind it: this proves nothing";
    for (std::size_t cut = 1; cut < whole.sent.size(); ++cut) {
      Halting side(cut);
      ASSERT_TRUE(side.post(kind.op, kind.length, 1));
      side.lane->flush();
      ASSERT_EQ(side.sent.size(), cut);
      side.hear(answer(kind.op, kind.length, 1).bytes);
      ASSERT_EQ(side.lane->broken(), cut < frames[0].end) << "cut at " << cut << " of a frame to " << frames[0].end;
      if (side.lane->broken()) continue;
      ASSERT_EQ(side.done(), std::vector<SliceToken>{1}) << cut;
      ASSERT_TRUE(side.post(kind.op, kind.length, 2));
      side.socket->room = ~std::size_t{0};
      side.lane->flush();
      ASSERT_FALSE(side.lane->broken());
      EXPECT_FALSE(side.lane->has_output());
      ASSERT_EQ(frames_of(side.sent).size(), 2u) << cut;
      EXPECT_EQ(side.sent.size(), 2 * whole.sent.size());
      side.hear(answer(kind.op, kind.length, 2).bytes);
      ASSERT_FALSE(side.lane->broken());
      ASSERT_EQ(side.done(), std::vector<SliceToken>{2}) << cut;
    }
  }
}

// Whatever the socket takes each time, the same bytes leave, and the other side finds what they say.
TEST(TcpLane, TheStreamIsTheSameHoweverLittleTheSocketTakes) {
  const auto posted = [](Halting& side) {
    return side.post(Op::write, 20, 1) && side.post(Op::write, 5000, 2) && side.post(Op::message, 300, 3) &&
           side.post(Op::write, 1024, 4);
  };
  Halting whole(~std::size_t{0});
  ASSERT_TRUE(posted(whole));
  whole.lane->flush();
  ASSERT_EQ(frames_of(whole.sent).size(), 4u);
  for (const std::size_t room : {1u, 2u, 7u, 39u, 40u, 41u, 63u, 64u, 65u, 1023u, 4096u}) {
    Halting side(room);
    ASSERT_TRUE(posted(side));
    for (std::size_t turn = 0; turn < 10000 && side.lane->has_output(); ++turn) side.lane->flush();
    EXPECT_EQ(side.sent, whole.sent) << room;
  }
}

// The same of an answer: the peer may ask for more as soon as it has it, and the next answer takes its place.
TEST(TcpLane, ARequestMayOvertakeThePaddingBehindAnAnswer) {
  const auto request = [](RegionId region, std::uint32_t token) {
    Header header;
    header.token = token;
    header.region = region;
    header.length = 8;
    Stream stream;
    stream.add(encode(header));
    stream.add(std::vector<std::byte>(8, std::byte{3}));
    return stream;
  };
  for (std::size_t cut = 1; cut < kAlignment; ++cut) {
    Halting side(cut);
    side.hear(request(side.mine, 77).bytes);
    side.lane->flush();
    ASSERT_EQ(side.sent.size(), cut);
    side.hear(request(side.mine, 78).bytes);
    side.socket->room = ~std::size_t{0};
    side.lane->flush();
    ASSERT_FALSE(side.lane->broken());
    const auto frames = frames_of(side.sent);
    ASSERT_EQ(frames.size(), 2u) << cut;
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const auto header = decode(std::span(side.sent).subspan(frames[i].begin).first<kHeaderBytes>());
      EXPECT_EQ(header->token, 77 + i) << cut;
    }
  }
}

}  // namespace
}  // namespace fairway::transport::tcp
