#include "engine/tables/turns.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace fairway::engine {
namespace {

// A table whose transfers have so much left to post, and links that take so many pieces each time that they are asked.
struct Line {
  TransferTable table{8};
  Turns turns{table};
  std::map<std::uint32_t, std::uint64_t> left;    // pieces, by slot
  std::map<std::uint32_t, std::uint64_t> posted;  // so far
  std::vector<std::uint32_t> ended;

  std::uint32_t add(std::uint64_t pieces, Priority priority = Priority::normal) {
    const std::uint32_t slot = table.acquire();
    table[slot].request.options.priority = priority;
    left[slot] = pieces;
    turns.add(slot);
    return slot;
  }
  // As Peer::post_transfers does it.
  void pump(std::uint32_t room, std::uint64_t piece_bytes) {
    for (std::size_t priority = Turns::kPriorities; priority-- > 0;)
      for (std::uint32_t n = turns.waiting(priority); n > 0 && turns.waiting(priority) > 0; --n) {
        const std::uint32_t slot = turns.take(priority);
        const std::uint64_t most = std::min<std::uint64_t>(turns.left(slot, piece_bytes), left[slot]);
        std::uint64_t now = 0;
        for (; now < most && room > 0; ++now, --room) turns.spend(slot, {0, 0, piece_bytes, 1, 0});
        left[slot] -= now;
        posted[slot] += now;
        if (left[slot] == 0) {
          ended.push_back(slot);
        } else if (turns.used_up(slot)) {
          turns.rest(slot);
        } else {
          turns.keep(slot);
          break;
        }
      }
  }
};

TEST(Turns, RoomThatComesPieceByPieceIsShared) {
  Line line;
  const std::uint32_t endless = line.add(~std::uint64_t{0});
  line.pump(1, 8);
  const std::uint32_t late = line.add(3);
  for (int i = 0; i < 20; ++i) line.pump(1, 8);
  EXPECT_EQ(line.ended, std::vector{late}) << "it waits behind one without end";
  EXPECT_LE(line.posted[endless], 20u);
}

TEST(Turns, ATurnEndsByItsBytesToo) {
  Line line;
  const std::uint64_t piece = Turns::kBytes / 2;
  (void)line.add(1000);
  const std::uint32_t second = line.add(1000);
  line.pump(2, piece);
  EXPECT_EQ(line.posted[second], 0u);
  line.pump(2, piece);
  EXPECT_EQ(line.posted[second], 2u) << "the first has had its bytes";
}

TEST(Turns, APieceLargerThanATurnIsPostedAllTheSame) {
  Line line;
  const std::uint32_t only = line.add(3);
  for (int i = 0; i < 3; ++i) line.pump(4, 2 * Turns::kBytes);
  EXPECT_EQ(line.ended, std::vector{only});
}

TEST(Turns, OfOnePriorityEachHasAsMuchAsTheOthers) {
  Line line;
  std::vector<std::uint32_t> all;
  for (int i = 0; i < 4; ++i) all.push_back(line.add(1 << 20));
  for (int i = 0; i < 4096; ++i) line.pump(3, 4096);
  for (const std::uint32_t slot : all) EXPECT_NEAR(static_cast<double>(line.posted[slot]), 3072, Turns::kPieces);
}

TEST(Turns, AHigherPriorityGoesFirst) {
  Line line;
  const std::uint32_t bulk = line.add(1000, Priority::bulk);
  const std::uint32_t urgent = line.add(40, Priority::urgent);
  for (int i = 0; i < 10; ++i) line.pump(4, 8);
  EXPECT_EQ(line.posted[urgent], 40u);
  EXPECT_EQ(line.posted[bulk], 0u);
}

TEST(Turns, OneThatLeavesLeavesItsTurnToNobody) {
  Line line;
  const std::uint32_t first = line.add(1000);
  const std::uint32_t second = line.add(1000);
  line.pump(Turns::kPieces - 1, 8);  // all but one piece of the first one's turn
  EXPECT_TRUE(line.turns.remove(first));
  EXPECT_FALSE(line.turns.remove(first));
  line.pump(Turns::kPieces, 8);
  EXPECT_EQ(line.posted[second], Turns::kPieces);
}

TEST(TransferQueue, KeepsItsOrderWhateverLeaves) {
  TransferTable table(5);
  TransferQueue queue(table);
  std::vector<std::uint32_t> slots;
  for (int i = 0; i < 5; ++i) slots.push_back(table.acquire());
  for (int i = 1; i < 5; ++i) queue.push(slots[static_cast<std::size_t>(i)]);
  queue.push_front(slots[0]);
  EXPECT_TRUE(queue.remove(slots[2]));
  EXPECT_TRUE(queue.remove(slots[4]));
  EXPECT_FALSE(queue.remove(slots[4]));
  queue.push(slots[4]);
  EXPECT_EQ(queue.size(), 4u);
  for (const std::size_t i : {0u, 1u, 3u, 4u}) {
    EXPECT_EQ(queue.pop(), slots[i]);
    EXPECT_FALSE(table[slots[i]].queued);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.head(), kNoSlot);
}

}  // namespace
}  // namespace fairway::engine
