#include <set>
#include <string>

#include <gtest/gtest.h>

#include "sim/group_measure.h"

// What pictures of collectives are drawn from: each message of engines that run a schedule, and what it carries.
namespace fairway::sim {
namespace {

std::string name_of(const FollowedCall& one) {
  return std::string(to_string(one.call.kind)) + " by " + std::string(to_string(one.call.algorithm)) +
         (one.in_place ? ", in place" : "") + ", " + std::to_string(one.call.ranks) + " ranks";
}

FollowedCall call_of(CollectiveKind kind, Algorithm algorithm, int ranks) {
  for (const FollowedCall& one : calls_to_follow(ranks, 1))
    if (one.call.kind == kind && one.call.algorithm == algorithm) return one;
  ADD_FAILURE() << "no such call";
  return {};
}

std::multiset<std::string> texts_of(const FollowedCall& one) {
  std::multiset<std::string> texts;
  const auto run = follow(one);
  if (!run) ADD_FAILURE() << run.status().to_string();
  for (const GroupMessage& message : run->messages) texts.insert(message.content.text);
  return texts;
}

using Texts = std::multiset<std::string>;

TEST(FollowedCollectives, EachMessageOfTheFormulaIsThereOnceAndTakesItsTime) {
  for (const int ranks : {2, 3, 4, 7, 8})
    for (const int per_host : {1, 2, 3})
      for (const FollowedCall& one : calls_to_follow(ranks, per_host)) {
        if (per_host > 1 && one.call.algorithm != Algorithm::hierarchical) continue;
        SCOPED_TRACE(name_of(one) + ", hosts of " + std::to_string(per_host));
        const auto run = follow(one);
        ASSERT_TRUE(run) << run.status().to_string();
        const SteadyLink link;
        for (int rank = 0; rank < ranks; ++rank) {
          const Sent formula = expected_sent(one.call, rank);
          std::uint64_t messages = 0, bytes = 0;
          for (const GroupMessage& message : run->messages) {
            if (message.from != rank) continue;
            ++messages;
            bytes += message.content.bytes + 64;
            const Time wire = link.message + (message.content.bytes + 64) * kSecond / link.bytes_per_second;
            ASSERT_GE(message.arrives, message.leaves + link.latency + wire);
            ASSERT_LE(message.arrives, run->returned[static_cast<std::size_t>(message.to)]);
          }
          ASSERT_EQ(messages, formula.messages) << "rank " << rank;
          ASSERT_EQ(bytes, formula.bytes) << "rank " << rank;
        }
      }
}

TEST(FollowedCollectives, MessagesSayWhatTheyCarry) {
  EXPECT_EQ(texts_of(call_of(CollectiveKind::all_reduce, Algorithm::ring, 3)),
            (Texts{"A", "B", "C", "A 0+1", "B 1+2", "C 0+2", "ΣA", "ΣB", "ΣC", "ΣA", "ΣB", "ΣC"}));
  EXPECT_EQ(texts_of(call_of(CollectiveKind::all_reduce, Algorithm::recursive_doubling, 4)),
            (Texts{"0", "1", "2", "3", "0+1", "0+1", "2+3", "2+3"}));
  EXPECT_EQ(texts_of(call_of(CollectiveKind::all_gather, Algorithm::bruck, 4)),
            (Texts{"0", "1", "2", "3", "0, 1", "1, 2", "2, 3", "3, 0"}));
  EXPECT_EQ(texts_of(call_of(CollectiveKind::all_to_all, Algorithm::direct, 2)), (Texts{"0→1", "1→0"}));
  EXPECT_EQ(texts_of(call_of(CollectiveKind::scatter, Algorithm::direct, 3)),
            (Texts{"B", "C", "", "", "", "", "", ""}));
  EXPECT_EQ(texts_of(call_of(CollectiveKind::reduce, Algorithm::binomial, 2)), (Texts{"1", "", ""}));
}

TEST(FollowedCollectives, ComeOutTheSameEachTime) {
  const FollowedCall one = call_of(CollectiveKind::all_reduce, Algorithm::direct, 4);
  const auto first = follow(one), second = follow(one);
  ASSERT_TRUE(first && second);
  ASSERT_EQ(first->messages.size(), second->messages.size());
  for (std::size_t i = 0; i < first->messages.size(); ++i) {
    EXPECT_EQ(first->messages[i].leaves, second->messages[i].leaves);
    EXPECT_EQ(first->messages[i].arrives, second->messages[i].arrives);
    EXPECT_EQ(first->messages[i].content.text, second->messages[i].content.text);
  }
  EXPECT_EQ(first->returned, second->returned);
}

TEST(FollowedCollectives, OfTooManyRanksAreRefused) {
  const auto run = follow(call_of(CollectiveKind::barrier, Algorithm::dissemination, kMostFollowed + 1));
  EXPECT_EQ(run.status().code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace fairway::sim
