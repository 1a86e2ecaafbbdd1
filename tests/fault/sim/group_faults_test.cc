#include <array>
#include <string>

#include <gtest/gtest.h>

#include "sim/group.h"

// Ranks of a simulated communicator that die, freeze or come late: every other one gets an error that names them, in
// time, and the rest goes on.
namespace fairway::sim {
namespace {

constexpr int kRanks = 64;
constexpr std::chrono::milliseconds kTimeout{500};  // of an operation
constexpr Time kBegins = kMillisecond;              // of the fault, after the start of the operations
constexpr int kFaulty = 17;

struct Outcome {
  CollectiveFailure failure;
  Time ended = 0;  // since the start of the operations
  bool goes_on = false;
  std::uint64_t sum = 0;  // of the ranks that go on, by them
  std::string why;
};

class SimulatedFault : public testing::Test {
 protected:
  void SetUp() override {
    GroupOptions options;
    options.ranks = kRanks;
    options.timeout = kTimeout;
    options.peer_timeout = peer_timeout_;
    options.max_transfers = max_transfers_;
    group_ = std::make_unique<Group>(options);
    const Status joined = group_->join();
    ASSERT_TRUE(joined) << joined.to_string();
    begun_ = group_->simulation().now();
  }

  Status all_reduce(Communicator& communicator, std::uint64_t mine, std::uint64_t& sum) {
    Collective call;
    call.kind = CollectiveKind::all_reduce;
    call.type = DataType::u64;
    call.count = 1;
    call.input = &mine;
    call.output = &sum;
    return communicator.run(call);
  }

  // Operations until one fails.
  void operate(Group::Rank& rank) {
    std::uint64_t sum = 0;
    while (all_reduce(*rank.communicator, 1, sum))
      if (sum != kRanks) ADD_FAILURE() << "rank " << rank.number << " got " << sum;
    Outcome& mine = outcome(rank.number);
    mine.failure = rank.communicator->failure();
    mine.ended = group_->simulation().now() - begun_;
  }

  void go_on(Group::Rank& rank, std::vector<int> without = {}) {
    Outcome& mine = outcome(rank.number);
    auto made = rank.communicator->shrink(without);
    mine.why = made.status().to_string();
    if (!made) return;
    const Status status = all_reduce(*made, static_cast<std::uint64_t>(rank.number), mine.sum);
    mine.why = status.to_string();
    mine.goes_on = status.is_ok();
  }

  void expect_named(const Outcome& one, int rank, Time bound) {
    EXPECT_FALSE(one.failure.status);
    EXPECT_EQ(one.failure.rank, kFaulty) << rank << ": " << one.failure.status.to_string();
    EXPECT_NE(one.failure.status.to_string().find("rank " + std::to_string(kFaulty)), std::string::npos)
        << rank << ": " << one.failure.status.to_string();
    EXPECT_LE(one.ended, kBegins + bound) << "rank " << rank;
  }

  void expect_the_others_go_on() {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) sum += rank == kFaulty ? 0 : static_cast<std::uint64_t>(rank);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kFaulty) continue;
      EXPECT_TRUE(outcome(rank).goes_on) << rank << ": " << outcome(rank).why;
      EXPECT_EQ(outcome(rank).sum, sum) << rank;
    }
  }

  Outcome& outcome(int rank) { return outcomes_[static_cast<std::size_t>(rank)]; }

  std::chrono::milliseconds peer_timeout_{60'000};
  std::uint32_t max_transfers_ = 0;
  std::array<Outcome, kRanks> outcomes_;
  Time begun_ = 0;
  std::unique_ptr<Group> group_;  // ends first: a dead rank's program ends with it
};

TEST_F(SimulatedFault, ARankThatDiesIsNamedToAllOthersAndTheyGoOn) {
  group_->simulation().in(
      kBegins, [](void* group, std::uint64_t, std::uint64_t) { static_cast<Group*>(group)->kill(kFaulty); },
      group_.get());
  ASSERT_TRUE(group_->run([&](Group::Rank& rank) {
    operate(rank);
    go_on(rank);
  }));
  // Their engines notice it by its port, which refuses connections; then the others know within 10 ms.
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != kFaulty) expect_named(outcome(rank), rank, 100 * kMillisecond);
  expect_the_others_go_on();
}

// With the least room in the engines that a communicator is content with: alarms go out a few at a time, and so do the
// questions how far the others are.
class SimulatedFaultWithLittleRoom : public SimulatedFault {
 protected:
  SimulatedFaultWithLittleRoom() { max_transfers_ = kRanks - 1 + 8; }
};

TEST_F(SimulatedFaultWithLittleRoom, ARankThatFreezesIsNamedAtTheDeadline) {
  group_->simulation().in(
      kBegins,
      [](void* group, std::uint64_t, std::uint64_t) { static_cast<Group*>(group)->rank(kFaulty).host->freeze(); },
      group_.get());
  ASSERT_TRUE(group_->run([&](Group::Rank& rank) { operate(rank); }));
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != kFaulty) expect_named(outcome(rank), rank, kTimeout.count() * kMillisecond + 120 * kMillisecond);
}

TEST_F(SimulatedFaultWithLittleRoom, ARankThatAbortsIsNamedToAllOthersAtOnce) {
  ASSERT_TRUE(group_->run([&](Group::Rank& rank) {
    std::uint64_t sum = 0;
    EXPECT_TRUE(all_reduce(*rank.communicator, 1, sum)) << "rank " << rank.number;
    if (rank.number == kFaulty) rank.communicator->abort();
    operate(rank);
  }));
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != kFaulty) expect_named(outcome(rank), rank, 20 * kMillisecond);
}

TEST_F(SimulatedFault, ARankThatFreezesIsNamedAtTheDeadlineAndTheOthersGoOn) {
  group_->simulation().in(
      kBegins,
      [](void* group, std::uint64_t, std::uint64_t) { static_cast<Group*>(group)->rank(kFaulty).host->freeze(); },
      group_.get());
  ASSERT_TRUE(group_->run([&](Group::Rank& rank) {
    operate(rank);
    go_on(rank, {kFaulty});
  }));
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != kFaulty) expect_named(outcome(rank), rank, kTimeout.count() * kMillisecond + 120 * kMillisecond);
  expect_the_others_go_on();
}

TEST_F(SimulatedFault, ARankThatComesLateIsNamedAndHearsThatTheOthersGaveUp) {
  ASSERT_TRUE(group_->run([&](Group::Rank& rank) {
    std::uint64_t sum = 0;
    EXPECT_TRUE(all_reduce(*rank.communicator, 1, sum)) << "rank " << rank.number;
    const Time until = begun_ + 3 * kSecond;
    while (rank.number == kFaulty && rank.strand->pause(until)) {
    }
    operate(rank);
    const Time again = begun_ + 4 * kSecond;
    while (rank.strand->pause(again)) {
    }
    go_on(rank);
  }));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kFaulty) continue;
    expect_named(outcome(rank), rank, kTimeout.count() * kMillisecond + 120 * kMillisecond);
    EXPECT_NE(outcome(rank).failure.status.to_string().find("never entered"), std::string::npos)
        << outcome(rank).failure.status.to_string();
  }
  EXPECT_FALSE(outcome(kFaulty).failure.status) << "the late one";
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(outcome(rank).goes_on) << rank << ": " << outcome(rank).why;
    EXPECT_EQ(outcome(rank).sum, kRanks * (kRanks - 1) / 2) << rank;
  }
}

// A rank that computes for longer than the others' first call of shrink lasts: it does not matter who called how often.
TEST(SimulatedFaultOfFour, ARankThatShrinksLateIsInTheNextAttempt) {
  std::array<std::string, 4> said;  // they outlive the group: a dead rank's program ends with it
  std::array<int, 4> tries{};
  GroupOptions options;
  options.ranks = 4;
  options.timeout = kTimeout;
  options.peer_timeout = std::chrono::seconds(60);
  Group group(options);
  ASSERT_TRUE(group.join());
  group.simulation().in(
      kBegins, [](void* one, std::uint64_t, std::uint64_t) { static_cast<Group*>(one)->kill(3); }, &group);
  const Time begun = group.simulation().now(), timeout = kTimeout.count() * kMillisecond;
  ASSERT_TRUE(group.run([&](Group::Rank& rank) {
    while (rank.communicator->run({})) {
    }
    while (rank.number == 1 && rank.strand->pause(begun + timeout * 3 / 2)) {
    }
    const auto at = static_cast<std::size_t>(rank.number);
    while (group.simulation().now() < begun + 4 * timeout) {
      ++tries[at];
      auto made = rank.communicator->shrink();
      said[at] = made.status().to_string();
      if (!made) continue;
      EXPECT_EQ(made->size(), rank.number == 3 ? 1 : 3);
      EXPECT_TRUE(made->run({}));
      break;
    }
  }));
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(said[rank], "ok") << "rank " << rank;
  tries[3] = 0;
  EXPECT_EQ(tries, (std::array<int, 4>{2, 1, 2, 0}));
}

// What it is told, and that the others leave, finds nobody: that takes no room for ever.
TEST(SimulatedFaultOfFour, AFrozenRankTakesNoRoomInTheOthersEngines) {
  GroupOptions options;
  options.ranks = 4;
  options.timeout = kTimeout;
  options.peer_timeout = std::chrono::seconds(60);
  Group group(options);
  ASSERT_TRUE(group.join());
  group.simulation().in(
      kBegins, [](void* one, std::uint64_t, std::uint64_t) { static_cast<Group*>(one)->rank(3).host->freeze(); },
      &group);
  ASSERT_TRUE(group.run([&](Group::Rank& rank) {
    while (rank.communicator->run({})) {
    }
    if (rank.number == 3) return;  // it thaws when the group ends
    const int frozen[] = {3};
    EXPECT_TRUE(rank.communicator->shrink(frozen));
    rank.communicator.reset();
    EXPECT_EQ(rank.engine->metrics().transfers_in_use, 0U) << rank.number;
  }));
}

// A process that gets no core while the others give up has all that they sent in its sockets when it goes on: their
// part of the operation, and that they gave up. The one must not make it end well before it has read the other.
TEST(SimulatedFaultOfTwo, ARankThatWasFrozenWhileTheOtherGaveUpHearsOfIt) {
  for (const auto away : {std::chrono::milliseconds(250), std::chrono::milliseconds(1000)}) {
    GroupOptions options;
    options.timeout = kTimeout;
    Group group(options);
    ASSERT_TRUE(group.join());
    const Time begun = group.simulation().now();
    group.simulation().in(
        kBegins, [](void* one, std::uint64_t, std::uint64_t) { static_cast<Group*>(one)->rank(1).host->freeze(); },
        &group);
    group.simulation().in(
        kBegins + away.count() * kMillisecond,
        [](void* one, std::uint64_t, std::uint64_t) { static_cast<Group*>(one)->rank(1).host->thaw(); }, &group);
    Status ends[2];
    ASSERT_TRUE(group.run([&](Group::Rank& rank) {
      while (rank.number == 1 && rank.strand->pause(begun + 2 * kBegins)) {
      }
      Collective barrier;
      barrier.timeout = std::chrono::milliseconds(100);
      ends[rank.number] = rank.communicator->run(barrier);
    }));
    while (!group.rank(1).strand->ended() && group.simulation().step()) {  // run() waits for no frozen one
    }
    EXPECT_FALSE(ends[0]) << "nobody came in time";
    EXPECT_FALSE(ends[1]) << "away for " << away.count() << " ms";
  }
}

}  // namespace
}  // namespace fairway::sim
