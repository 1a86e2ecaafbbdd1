#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "transport/host/lane.h"

namespace fairway::transport::host {
namespace {

constexpr std::uint32_t kMessage = 8192;

// Writes the next message into a cell that its reader may still hold: a race that an honest peer never causes. It
// stands for another process, whose stores ThreadSanitizer would not see.
__attribute__((noinline, no_sanitize("thread"))) void put(Segment& segment, std::uint32_t at) {
  Cell& cell = segment.directions[1].cells[at % kCells];
  cell.record.type = RecordType::message;
  cell.record.length = kMessage;
  cell.stamp.store(at + 1);
}

// Counts the messages received at the end of an epoch, when the peer has declared its last access but refills the ring
// as fast as it is read.
std::uint64_t heard_beside_a_peer_that_fills() {
  constexpr std::uint32_t kMost = 2000;
  RegionTable regions(8);
  const auto segment = std::make_unique<Segment>();
  auto pair = std::make_shared<Pair>();
  pair->segment = segment.get();
  Imports imports;
  EventQueue events;
  CostCounters counters;
  Lane lane(pair, {0, 1}, 7, regions, imports, events, counters, nullptr);
  std::uint32_t filled = 0;
  while (filled < kCells) put(*segment, filled++);
  std::atomic<bool> runs{false}, stop{false};
  std::thread peer([&] {
    runs = true;
    while (!stop.load() && filled < kMost)
      while (filled < counters.copied_bytes.load() / kMessage + kCells) put(*segment, filled++);
  });
  while (!runs) std::this_thread::yield();
  lane.fence();
  EXPECT_TRUE(lane.fenced());
  stop = true;
  peer.join();
  return counters.copied_bytes.load() / kMessage;
}

TEST(HostileRing, AFenceHearsNoMoreThanTheRingHolds) {
  for (int i = 0; i < 40; ++i) ASSERT_LE(heard_beside_a_peer_that_fills(), kCells);
}

// What lies in its record is copied out with it: no length reaches beyond.
TEST(HostileRing, AMessageInItsRecordThatIsTooLongEndsTheLink) {
  for (const std::uint32_t length : {kInlineBytes, kInlineBytes + 1, ~0u}) {
    RegionTable regions(8);
    const auto segment = std::make_unique<Segment>();
    auto pair = std::make_shared<Pair>();
    pair->segment = segment.get();
    Imports imports;
    EventQueue events;
    CostCounters counters;
    Lane lane(pair, {0, 1}, 7, regions, imports, events, counters, nullptr);
    Cell& cell = segment->directions[1].cells[0];
    cell.record.type = RecordType::message;
    cell.record.code = Record::kInline;
    cell.record.length = length;
    cell.stamp.store(1);
    lane.receive(1 << 16);
    std::array<Event, 2> heard;
    ASSERT_EQ(events.take(heard), 1u);
    EXPECT_EQ(heard[0].kind, length == kInlineBytes ? EventKind::message : EventKind::link_down);
    EXPECT_EQ(heard[0].status.code(), length == kInlineBytes ? ErrorCode::ok : ErrorCode::protocol_error);
    pair->gone = true;
  }
}

}  // namespace
}  // namespace fairway::transport::host
