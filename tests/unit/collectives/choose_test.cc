#include "collectives/choose.h"

#include <gtest/gtest.h>

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

// The switch points that docs/collectives.md prints.
TEST(Choose, SwitchesWhereTheDocumentSays) {
  const auto all_reduce = [](int size, std::uint64_t bytes) {
    return choose(CollectiveKind::all_reduce, size, bytes, kPiece, kSameHost);
  };
  EXPECT_EQ(all_reduce(2, 8), Algorithm::one_shot);
  EXPECT_EQ(all_reduce(2, 64 << 20), Algorithm::direct);
  EXPECT_EQ(all_reduce(8, 8), Algorithm::recursive_doubling);
  EXPECT_EQ(all_reduce(8, 1 << 20), Algorithm::direct);
  EXPECT_EQ(all_reduce(32, 64 << 20), Algorithm::ring);
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
