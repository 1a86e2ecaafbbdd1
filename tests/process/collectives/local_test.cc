#include <atomic>
#include <csignal>
#include <cstdio>

#include <gtest/gtest.h>

#include "process/collectives/case.h"
#include "process/collectives/group.h"

// Collective::local_completion: what has a root ends at each rank apart from the others, and who does not come is found
// by a later operation.
namespace fairway {
namespace {

constexpr CollectiveKind kRooted[] = {CollectiveKind::broadcast, CollectiveKind::reduce, CollectiveKind::gather,
                                      CollectiveKind::scatter};
constexpr int kRoom = 8;  // messages that lie between two ranks

struct Local : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Local, testing::Values("shm", "tcp", "hosts"));

// Operations follow each other at once, and each rank writes over its memory as soon as it has it back.
TEST_P(Local, GivesEveryValueAndTheMemoryBack) {
  for (const int size : {1, 2, 5})
    run_group(group_over(size, GetParam()), [](Engine&, Communicator& group) {
      for (const std::size_t count : {0U, 1U, 12U, 3000U, 40'000U, 400'000U})
        for (const CollectiveKind kind : kRooted)
          for (int round = 0; round < 3; ++round) {
            One one({.kind = kind, .count = count, .root = round % group.size()}, group.rank(), group.size());
            one.call.local_completion = true;
            const Status status = group.run(one.call);
            one.scribble();
            ASSERT_TRUE(status) << status.to_string();
            ASSERT_EQ(one.wrong(), "") << to_string(kind) << " of " << count;
          }
    });
}

Collective of(CollectiveKind kind, std::vector<float>& in, std::vector<float>& out, std::size_t count = 4) {
  Collective call{.kind = kind, .input = in.data(), .output = out.data(), .count = count, .type = DataType::f32};
  call.local_completion = true;
  return call;
}

// Until `ready`, with its engine at work.
void stay_away(Engine& engine, const std::atomic<int>& ready, int least) {
  while (ready < least) (void)engine.wait_notification(std::chrono::milliseconds(1));
}

TEST_P(Local, WhoHasNothingToWaitForRunsAhead) {
  std::atomic<int> sent{0};
  run_group(group_over(4, GetParam()), [&](Engine& engine, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    int turn = 0;
    for (const CollectiveKind kind : {CollectiveKind::broadcast, CollectiveKind::scatter}) {
      ++turn;
      if (group.rank() != 0) stay_away(engine, sent, turn);
      for (int i = 0; i < 4; ++i) {
        std::vector<float> in(16, static_cast<float>(i)), out(16);
        ASSERT_TRUE(group.run(of(kind, in, out)));
        EXPECT_EQ(out[3], static_cast<float>(i));
      }
      if (group.rank() == 0) ++sent;
      ASSERT_TRUE(group.run({}));
    }
    for (const CollectiveKind kind : {CollectiveKind::gather, CollectiveKind::reduce}) {
      ++turn;
      if (group.rank() != 3) stay_away(engine, sent, turn);  // a leaf of the tree
      for (int i = 0; i < 4; ++i) {
        std::vector<float> in(16, 1), out(16);
        ASSERT_TRUE(group.run(of(kind, in, out)));
        if (group.rank() == 0) EXPECT_EQ(out[3], kind == CollectiveKind::gather ? 1 : 4);
      }
      if (group.rank() == 3) ++sent;
      ASSERT_TRUE(group.run({}));
    }
  });
}

// Everything else needs something of every rank: it ends no earlier by it, and nobody compares it.
TEST(LocalOfOthers, IsWithoutEffect) {
  run_group(group_over(3, "shm"), [](Engine&, Communicator& group) {
    std::vector<float> in(12, 1), out(12);
    for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::barrier,
                                      CollectiveKind::reduce_scatter, CollectiveKind::all_to_all}) {
      Collective call = of(kind, in, out);
      call.local_completion = group.rank() == 1;
      const Status status = group.run(call);
      EXPECT_TRUE(status) << status.to_string();
    }
  });
}

int say_why(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  return 1;
}

// How many local broadcasts end well, up to `most`; then the status of the one that does not.
int run_ahead(Communicator& group, int most, Status& status, std::optional<Timeout> timeout = {}) {
  std::vector<float> in(8, 2), out(8);
  for (int i = 0; i < most; ++i) {
    Collective call = of(CollectiveKind::broadcast, in, out);
    call.timeout = timeout;
    status = group.run(call);
    if (!status) return i;
    if (out[3] != 2) status = {ErrorCode::protocol_error, "a wrong value"};
    if (!status) return i;
  }
  return most;
}

int go_on(Communicator& group, int size, std::span<const int> without = {}) {
  auto rest = group.shrink(without);
  if (!rest) return say_why("shrink", rest.status());
  Status status;
  if (run_ahead(*rest, 20, status) != 20) return say_why("after", status);
  if (const Status all = rest->run({}); !all) return say_why("the barrier after", all);
  return rest->size() == size ? 0 : 2;
}

TEST_P(Local, AKilledRankIsNamedAndTheOthersGoOn) {
  const auto ends = run_processes(group_over(4, GetParam()), [](Engine&, Communicator& group) {
    Status status;
    if (run_ahead(group, 3, status) != 3) return say_why("before", status);
    if (group.rank() == 3) ::raise(SIGKILL);
    if (run_ahead(group, 10'000'000, status) == 10'000'000) return say_why("it was not found", status);
    if (group.failure().rank != 3) return say_why("who", status);
    return go_on(group, 3);
  });
  ASSERT_EQ(ends.size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ends[rank].well, rank != 3) << "rank " << rank << ": " << ends[rank].said;
}

TEST_P(Local, AFrozenRankIsNamedAndTheOthersGoOn) {
  GroupOptions options = group_over(4, GetParam());
  options.peer_timeout = std::chrono::seconds(4);  // a loaded machine's other ranks answer within it
  const auto ends = run_processes(options, [](Engine&, Communicator& group) {
    Status status;
    if (run_ahead(group, 3, status) != 3) return say_why("before", status);
    if (group.rank() == 1) {
      ::raise(SIGSTOP);
      return 3;
    }
    if (run_ahead(group, 10'000'000, status) == 10'000'000) return say_why("it was not found", status);
    if (group.failure().rank != 1) return say_why("who", status);
    const int frozen[] = {1};
    return go_on(group, 3, frozen);
  });
  ASSERT_EQ(ends.size(), 4U);
  for (const std::size_t rank : {0U, 2U, 3U})
    EXPECT_TRUE(ends[rank].well) << "rank " << rank << ": " << ends[rank].said;
}

// The bound: who sends to it has eight messages on their way, and whoever sends to that one eight more.
TEST_P(Local, AnAbsentRankIsNamedOnceItsSlotsAreFull) {
  std::atomic<int> told{0};
  run_group(group_over(4, GetParam()), [&](Engine& engine, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    Status status;
    if (group.rank() == 3) {  // alive, and elsewhere
      stay_away(engine, told, 3);
      // What was sent before lies here: those end well, and then it is told.
      const int well = run_ahead(group, 100, status);
      EXPECT_LE(well, kRoom);
      EXPECT_FALSE(status);
      EXPECT_EQ(group.failure().rank, 3) << status.to_string();
      return;
    }
    const int well = run_ahead(group, 100, status, std::chrono::seconds(3));
    ++told;
    EXPECT_LE(well, 2 * kRoom + 1);
    if (group.rank() == 2) EXPECT_LE(well, kRoom);  // whose child it is
    EXPECT_EQ(status.code(), ErrorCode::deadline_exceeded) << status.to_string();
    EXPECT_EQ(group.failure().rank, 3) << status.to_string();
    EXPECT_NE(status.message().find("rank 3"), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find("never entered it; it was last in operation 2"), std::string::npos)
        << status.to_string();
  });
}

TEST_P(Local, AnAbsentRankIsNamedByTheNextFullOperation) {
  std::atomic<int> told{0};
  run_group(group_over(3, GetParam()), [&](Engine& engine, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    if (group.rank() == 1) return stay_away(engine, told, 2);
    Status status;
    EXPECT_EQ(run_ahead(group, 2, status), 2) << status.to_string();
    status = group.run({.timeout = std::chrono::seconds(3)});
    ++told;
    EXPECT_EQ(status.code(), ErrorCode::deadline_exceeded) << status.to_string();
    EXPECT_EQ(group.failure().rank, 1) << status.to_string();
  });
}

// It sent its part and left: that is no error of those who take it later.
TEST_P(Local, WhoHasSentItsPartMayLeave) {
  const auto ends = run_processes(group_over(3, GetParam()), [](Engine& engine, Communicator& group) {
    std::vector<float> in(8, 3), out(8);
    if (const Status status = group.run({}); !status) return say_why("before", status);
    if (group.rank() != 0) (void)engine.wait_counter(4000, 1, std::chrono::milliseconds(300));
    const Status status = group.run(of(CollectiveKind::scatter, in, out, 2));
    if (!status) return say_why("scatter", status);
    return out[1] == 3 ? 0 : 2;
  });
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].well) << "rank " << rank << ": " << ends[rank].said;
}

// All ranks hear what rank 1 and the root called, also if the root was some operations ahead.
void expect_mismatch(const std::string& transport, const Collective& usual, const Collective& other,
                     std::initializer_list<const char*> words) {
  run_group(group_over(3, transport), [&](Engine&, Communicator& group) {
    std::vector<float> in(64), out(64);
    Status status;
    for (int i = 0; i < 40 && status; ++i) {
      Collective call = group.rank() == 1 && i == 2 ? other : usual;
      call.input = in.data();
      call.output = out.data();
      status = group.run(call);
    }
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument) << status.to_string();
    for (const char* word : words) EXPECT_NE(status.message().find(word), std::string::npos) << status.to_string();
  });
}

TEST_P(Local, AMismatchNamesBothCalls) {
  std::vector<float> none(64);
  Collective usual = of(CollectiveKind::broadcast, none, none, 8), longer = usual, whole = usual;
  longer.count = 9;
  whole.local_completion = false;
  expect_mismatch(GetParam(), usual, longer, {"rank 1", "of 8 f32", "of 9 f32"});
  expect_mismatch(GetParam(), usual, whole, {"rank 1", "with local completion"});
}

}  // namespace
}  // namespace fairway
