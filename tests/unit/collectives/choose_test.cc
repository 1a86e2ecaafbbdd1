#include "collectives/host/choose.h"

#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "unit/collectives/choose_table.h"

namespace fairway::collectives {
namespace {

constexpr std::uint64_t kPiece = 64 << 10;

TEST(Choose, TakesTheCheapestOfTheKind) {
  for (int size = 2; size <= kSameHost.most_flows; ++size)
    for (std::uint64_t bytes = 0; bytes <= (64U << 20); bytes = bytes == 0 ? 8 : bytes * 4)
      for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::reduce,
                                        CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
        const double chosen =
            cost_of(kind, choose(kind, size, bytes, kPiece, kSameHost), size, bytes, kPiece, kSameHost);
        for (const Algorithm other : algorithms_of(kind))
          ASSERT_LE(chosen * 0.998, cost_of(kind, other, size, bytes, kPiece, kSameHost))
              << to_string(other) << " " << bytes;
      }
}

// Every cell of the table in docs/collective-algorithms.md, and no row beside those.
TEST(Choose, SwitchesWhereTheDocumentSays) {
  std::ifstream page(FAIRWAY_SOURCE_DIR "/docs/collective-algorithms.md");
  ASSERT_TRUE(page.is_open());
  std::set<std::string> told;
  for (std::string line; std::getline(page, line);)
    for (const Link& link : kLinks)
      if (line.starts_with("| ") && line.find(std::string("| ") + link.name + " |") != std::string::npos)
        told.insert(line);
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::reduce, CollectiveKind::broadcast, CollectiveKind::all_gather,
        CollectiveKind::reduce_scatter, CollectiveKind::all_to_all})
    for (const Link& link : kLinks) EXPECT_EQ(told.erase(row(kind, link)), 1U) << "the page lacks: " << row(kind, link);
  for (const std::string& row : told) ADD_FAILURE() << "choose() says something else than: " << row;
}

// What the table's search between two sizes could miss.
TEST(Choose, TheTableHasEverySwitchOfFewBytes) {
  for (const Link& link : kLinks)
    for (const int size : kTableRanks) {
      const std::string cell = choices(CollectiveKind::all_reduce, size, link);
      const std::uint64_t piece = link.most_piece == 0 ? mapped_piece(size) : kPiece;
      Algorithm last = choose(CollectiveKind::all_reduce, size, 0, piece, *link.costs);
      EXPECT_TRUE(cell.starts_with(to_string(last))) << cell;
      for (std::uint64_t bytes = 1; bytes < 2048; ++bytes) {
        const Algorithm now = choose(CollectiveKind::all_reduce, size, bytes, piece, *link.costs);
        if (now != last)
          EXPECT_NE(cell.find(std::to_string(bytes) + " " + std::string(to_string(now))), std::string::npos) << cell;
        last = now;
      }
    }
}

TEST(Choose, LetsFewLongMessagesComeIntoOneRankAtOnce) {
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    for (const Costs& costs : {kMapped, kSameHost, kNetwork}) {
      EXPECT_EQ(choose(kind, costs.most_flows + 1, 64 << 20, kPiece, costs), Algorithm::ring) << to_string(kind);
      EXPECT_NE(choose(kind, costs.most_flows, 64 << 20, kPiece, costs), Algorithm::ring) << to_string(kind);
    }
    // Over sockets 8 ranks that all send to all are slower than a ring, from blocks of two pieces on.
    EXPECT_EQ(choose(kind, 8, 8 << 20, kPiece, kNetwork), Algorithm::ring) << to_string(kind);
  }
}

// What all ranks of a host store into each other's slots before anybody reads it.
TEST(Choose, KeepsTheSlotsOfAHostInItsCaches) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    const std::uint64_t piece = mapped_piece(ranks);
    EXPECT_LE(piece, mapped_piece(ranks - 1)) << ranks;
    EXPECT_EQ(piece % 64, 0U) << "an element of any type is cut";
    if (piece > mapped_piece(64)) EXPECT_LE(piece * 8 * static_cast<unsigned>(ranks * (ranks - 1)), 8U << 20) << ranks;
  }
  EXPECT_EQ(mapped_piece(2), 64U << 10);
  EXPECT_EQ(mapped_piece(4), 64U << 10);
  EXPECT_EQ(mapped_piece(8), 16U << 10);
}

TEST(Choose, SendsLongBroadcastsThroughAChain) {
  EXPECT_EQ(choose(CollectiveKind::broadcast, 8, 64 << 20, kPiece, kSameHost), Algorithm::chain);
  EXPECT_EQ(choose(CollectiveKind::broadcast, 8, 8, kPiece, kSameHost), Algorithm::binomial);
}

TEST(Choose, SavesMessagesOfSmallBlocks) {
  EXPECT_EQ(choose(CollectiveKind::all_to_all, 64, 8, kPiece, kNetwork), Algorithm::bruck);
  EXPECT_EQ(choose(CollectiveKind::all_to_all, 64, 1 << 20, kPiece, kNetwork), Algorithm::direct);
}

}  // namespace
}  // namespace fairway::collectives
