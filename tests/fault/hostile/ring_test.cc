#include <thread>

#include <gtest/gtest.h>

#include "transport/host/lane.h"

namespace fairway::transport::host {
namespace {

constexpr std::uint32_t kMessage = 8192;

// The next message, in a cell that its reader may not have given back: a race that an honest peer never has. It stands
// for another process, whose stores ThreadSanitizer would not see.
__attribute__((noinline, no_sanitize("thread"))) void put(Segment& segment, std::uint32_t at) {
  Cell& cell = segment.directions[1].cells[at % kCells];
  cell.record.type = RecordType::message;
  cell.record.length = kMessage;
  cell.stamp.store(at + 1);
}

// Messages heard at the end of an epoch whose peer says that its last touch is over, and fills the ring as fast as it
// is read.
std::uint64_t heard_beside_a_peer_that_fills() {
  constexpr std::uint32_t kMost = 2000;
  RegionTable regions(8);
  const auto segment = std::make_unique<Segment>();
  auto pair = std::make_shared<Pair>();
  pair->segment = segment.get();
  Imports imports;
  EventQueue events;
  Counters counters;
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

}  // namespace
}  // namespace fairway::transport::host
