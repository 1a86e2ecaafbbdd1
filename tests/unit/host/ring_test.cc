#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "transport/host/segment.h"
#include "transport/transport.h"

namespace fairway::transport::host {
namespace {

struct Ring {
  explicit Ring(std::uint32_t cells = 0, std::uint32_t bytes = 0)
      : direction(std::make_unique<Direction>()), writer(*direction, cells, bytes), reader(*direction, cells, bytes) {
    direction->freed = cells;
    direction->freed_bytes = bytes;
    for (Cell& cell : direction->cells)  // of the lap before
      if (cells != 0) cell.stamp = cells;
  }
  std::unique_ptr<Direction> direction;
  RingWriter writer;
  RingReader reader;
  Record popped;
  std::span<const std::byte> payload;

  bool message(std::uint32_t size) {
    Record record;
    record.type = RecordType::message;
    record.length = size;
    return writer.payload(size, false) != nullptr && writer.push(record);
  }
  bool answer(std::uint32_t size) {
    Record record;
    record.type = RecordType::answer;
    record.length = size;
    return writer.payload(size, true) != nullptr && writer.push(record, true);
  }
  std::uint32_t fill() {  // with the longest messages, as far as there is room
    std::uint32_t count = 0;
    while (message(kMessageBytes)) ++count;
    return count;
  }
  bool pop() { return reader.pop(popped, payload); }
  [[nodiscard]] std::uint32_t freed() const { return direction->freed.load(); }
};

// A store that the writer sees costs a locked instruction, so not each message makes one.
TEST(Ring, MessagesAreFreedSomeTogether) {
  Ring ring;
  for (std::uint32_t i = 1; i < 16; ++i) {
    ASSERT_TRUE(ring.message(8));
    ASSERT_TRUE(ring.pop());
    EXPECT_FALSE(ring.reader.free());
    EXPECT_EQ(ring.freed(), 0u) << i;
  }
  ASSERT_TRUE(ring.message(8) && ring.pop());
  EXPECT_FALSE(ring.reader.free());
  EXPECT_EQ(ring.freed(), 16u);
}

// The byte positions pass 2^32 every 4 GiB, those of cells after four billion records: each record is there once,
// whole.
TEST(Ring, EachRecordIsThereOnceWhereThePositionsWrapAround) {
  for (const std::uint32_t before : {1u, 100u, 255u, 1000u}) {
    Ring ring(0u - before, 0u - 64 * before);
    std::uint32_t sent = 0, got = 0;
    const auto size_of = [](std::uint32_t number) { return 4 + number % 97 * 37; };
    while (got < 3000) {
      while (sent < 3000) {
        Record record;
        record.type = RecordType::message;
        record.length = size_of(sent);
        std::byte* const to = ring.writer.payload(record.length, false);
        if (to == nullptr) break;
        std::memset(to, static_cast<int>(sent % 251), record.length);
        ASSERT_TRUE(ring.writer.push(record));
        ++sent;
      }
      ASSERT_TRUE(ring.pop()) << got;
      ASSERT_EQ(ring.payload.size(), size_of(got));
      for (const std::byte each : ring.payload) ASSERT_EQ(each, static_cast<std::byte>(got % 251)) << got;
      ++got;
      if (got % 7 == 0) (void)ring.reader.free();
    }
    EXPECT_TRUE(ring.reader.empty());
    EXPECT_FALSE(ring.reader.malformed());
  }
}

TEST(Ring, LongMessagesAreFreedByTheirBytes) {
  Ring ring;
  ASSERT_TRUE(ring.message(kMessageBytes) && ring.pop());
  EXPECT_FALSE(ring.reader.free());
  EXPECT_EQ(ring.freed(), 0u);
  ASSERT_TRUE(ring.message(kMessageBytes) && ring.pop());
  EXPECT_FALSE(ring.reader.free());
  EXPECT_EQ(ring.freed(), 2u);
}

// Whatever the reader keeps, it keeps no writer waiting that found room before.
TEST(Ring, AWriterWhoseMessagesAreReadAlwaysFindsRoom) {
  for (const std::uint32_t size : {0u, 8u, 100u, 4096u, 5000u, 8191u, kMessageBytes}) {
    Ring ring;
    for (std::uint32_t i = 0; i < 4 * kCells; ++i) {
      ASSERT_TRUE(ring.message(size)) << size << " bytes, message " << i;
      ASSERT_TRUE(ring.pop());
      EXPECT_EQ(ring.payload.size(), size);
      ASSERT_FALSE(ring.reader.free()) << "nobody waits";
    }
  }
}

TEST(Ring, AWriterThatWaitsIsRungAndFindsRoom) {
  Ring ring;
  for (std::uint32_t lap = 0; lap < 40; ++lap) {
    const std::uint32_t before = lap % 16;  // kept by the reader when the ring becomes full
    for (std::uint32_t i = 0; i < before; ++i) {
      ASSERT_TRUE(ring.message(8) && ring.pop());
      (void)ring.reader.free();
    }
    ASSERT_GT(ring.fill(), 0u);
    bool rung = false;
    while (ring.pop()) rung |= ring.reader.free();
    ASSERT_TRUE(rung) << lap;
    ASSERT_TRUE(ring.message(kMessageBytes)) << lap;
    ASSERT_TRUE(ring.pop());
    (void)ring.reader.free();
  }
}

// The reader may ask for as many again as it has answers to: their room is kept for it alone.
TEST(Ring, AnswersFindRoomHoweverFullTheRingIs) {
  Ring ring;
  for (std::uint32_t i = 0; i < 15; ++i) {
    ASSERT_TRUE(ring.message(8) && ring.pop());
    (void)ring.reader.free();
  }
  ASSERT_GT(ring.fill(), 0u);
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (std::uint32_t i = 0; i < kMaxRequests; ++i) ASSERT_TRUE(ring.answer(kMaxPiece)) << round << ", " << i;
    ASSERT_TRUE(ring.pop());
    while (ring.popped.type != RecordType::answer) {  // the first time behind what has filled the ring
      (void)ring.reader.free();
      ASSERT_TRUE(ring.pop());
    }
    for (std::uint32_t i = 0; i < kMaxRequests; ++i) {
      ASSERT_EQ(ring.popped.type, RecordType::answer);
      (void)ring.reader.free();
      if (i + 1 == kMaxRequests) break;
      ASSERT_TRUE(ring.pop());
    }
    for (std::uint32_t i = 0; i < round % 16; ++i) {
      ASSERT_TRUE(ring.message(8) && ring.pop());
      (void)ring.reader.free();
    }
  }
}

TEST(Ring, AnAnswerIsFreedAtOnce) {
  Ring ring;
  ASSERT_TRUE(ring.message(8) && ring.pop());
  (void)ring.reader.free();
  ASSERT_TRUE(ring.answer(8) && ring.pop());
  (void)ring.reader.free();
  EXPECT_EQ(ring.freed(), 2u);
}

}  // namespace
}  // namespace fairway::transport::host
