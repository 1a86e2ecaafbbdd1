#include <gtest/gtest.h>

#include "collectives/host/alarms.h"

namespace fairway::collectives {
namespace {

Observed in(std::uint64_t operation, bool moves, int waits_for = -1) {
  Observed rank;
  rank.asked = rank.answers = true;
  rank.operation = operation;
  rank.moves = moves;
  rank.waits_for = waits_for;
  return rank;
}

const std::vector<std::string> kNames{"rank 0", "rank 1", "rank 2", "rank 3"};

TEST(Blame, ARankThatNeverCameIsNamed) {
  const Blame found = blame({in(9, true), in(9, true), in(8, false), in(9, true)}, kNames, 0, 9);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.text, "rank 2 never entered it; it was last in operation 8");
}

// Ranks that are still in the operation before, because they wait there for the one that froze.
TEST(Blame, ThoseWhoWaitForItInTheOperationBeforeAreNot) {
  const Blame found = blame({in(9, true), in(8, true, 2), in(8, false), in(8, true, 2)}, kNames, 0, 9);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.text, "rank 2 never entered it; it was last in operation 8");
}

TEST(Blame, RanksThatAreBehindAndMoveAreNamedIfNobodyElseIs) {
  const Blame found = blame({in(9, true), in(8, true), in(9, true), in(8, true)}, kNames, 0, 9);
  EXPECT_EQ(found.rank, 1);
}

TEST(Blame, ARankThatIsGoneWithoutHavingEnteredIsNamedBeforeAll) {
  std::vector<Observed> ranks{in(9, true), in(8, false), in(9, true), in(8, true)};
  ranks[3].gone = true;
  EXPECT_EQ(blame(ranks, kNames, 0, 9).rank, 3);
}

// With local completion ranks lag behind each other, and rank 1, which computes, has come to the one before.
TEST(Blame, OnlyThoseThatAreFurthestBackAreNamed) {
  const Blame found = blame({in(25, true), in(24, false), in(17, true, 3), in(9, false)}, kNames, 0, 25);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.text, "rank 3 never entered it; it was last in operation 9");
}

TEST(Blame, TheOneThatIsWaitedForIsNamedBeforeOneThatIsFurtherBack) {
  const Blame found = blame({in(25, true), in(17, false), in(20, true), in(9, false)}, kNames, 0, 25, 1);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.text, "rank 1 never entered it; it was last in operation 17");
}

// It has met its own deadline, a moment before this rank.
TEST(Blame, ARankThatWasInItAndIsGoneIsNotWhyAnotherNeverCame) {
  std::vector<Observed> ranks{in(9, true), in(8, false), in(9, true), in(9, true)};
  ranks[3].gone = true;
  const Blame found = blame(ranks, kNames, 0, 9);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.text, "rank 1 never entered it; it was last in operation 8");
  ranks[1] = in(9, true);
  EXPECT_EQ(blame(ranks, kNames, 0, 9).rank, 3) << "if nobody else is to blame";
}

// A deadline of a few microseconds leaves no time to ask: nothing read is not nothing there.
TEST(Blame, OfRanksThatNobodyAskedNothingIsSaid) {
  const std::vector<Observed> ranks(4);
  const Blame found = blame(ranks, kNames, 0, 9, 2);
  EXPECT_EQ(found.rank, -1);
  EXPECT_EQ(found.text, "it was too short to ask the other ranks where they are; this one waits for rank 2");
  std::vector<Observed> asked = ranks;
  asked[3].asked = true;
  EXPECT_EQ(blame(asked, kNames, 0, 9, 2).text, "rank 3 does not answer");
}

// They may all be away, or it is this one that is cut off: none alone is to blame.
TEST(Blame, WhereNoOtherRankAnswersNoneIsNamed) {
  std::vector<Observed> ranks(4);
  for (const std::size_t other : {0U, 1U, 3U}) ranks[other].asked = true;
  EXPECT_EQ(blame(ranks, kNames, 2, 9).rank, -1);
  ranks[3] = in(9, true);
  EXPECT_EQ(blame(ranks, kNames, 2, 9).rank, 0) << "of whom it is told that they do not answer";
  EXPECT_EQ(blame({{}, ranks[0]}, kNames, 0, 9).rank, 1) << "of two ranks there is only the other one";
}

std::optional<Blame> of_rank_2(Hearing zero, Hearing one, Hearing three, bool is_over = false) {
  return blame_lost({zero, one, Hearing::nothing_yet, three}, kNames, 2, 0, is_over);
}

TEST(BlameLost, IsTheLostOneOnceAnotherAnswers) {
  using enum Hearing;
  EXPECT_FALSE(of_rank_2(lost, nothing_yet, nothing_yet));
  EXPECT_FALSE(of_rank_2(lost, lost, nothing_yet));
  EXPECT_EQ(of_rank_2(lost, lost, answers)->rank, 0);
  EXPECT_EQ(of_rank_2(lost, nothing_yet, answers)->rank, 0);
  EXPECT_EQ(of_rank_2(lost, nothing_yet, nothing_yet, true)->rank, 0)
      << "the others are not lost by now: they are heard";
  EXPECT_EQ(of_rank_2(lost, left, left)->rank, 0) << "there is no other one to compare";
}

TEST(BlameLost, IsNobodyWhereAllAreLost) {
  using enum Hearing;
  const auto found = of_rank_2(lost, lost, lost);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, -1);
  EXPECT_NE(found->text.find("hears none of the others"), std::string::npos) << found->text;
}

TEST(BlameLost, IsThisRankWhereNobodyHearsIt) {
  using enum Hearing;
  const auto found = of_rank_2(lost_us, lost_us, lost);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);
  EXPECT_NE(found->text.find("no other rank hears it"), std::string::npos) << found->text;
  EXPECT_EQ(of_rank_2(lost_us, left, left)->text,
            "this rank lives, but rank 0 hears nothing of it: what it sends does not arrive");
}

// Who hears nobody has lost all, and tells all that it has; they hear each other.
TEST(BlameLost, IsTheOneThatHasLostUsIfNobodyElseSaysSo) {
  using enum Hearing;
  EXPECT_FALSE(of_rank_2(lost_us, answers, answers)) << "an alarm that names this rank may be on its way";
  EXPECT_EQ(of_rank_2(lost_us, answers, answers, true)->rank, 0);
}

}  // namespace
}  // namespace fairway::collectives
