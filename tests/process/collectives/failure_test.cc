#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include <gtest/gtest.h>

#include "process/collectives/group.h"
#include "support/open_engine.h"

// Ranks that die, freeze, stay away or call something else: every other rank is told who, and can go on without.
namespace fairway {
namespace {

constexpr std::uint64_t kJoining = 1;  // the number of the operation by which ranks join

GroupOptions failing(int size, const std::string& transport, std::chrono::milliseconds timeout) {
  GroupOptions options = group_over(size, transport);
  options.communicator.timeout = timeout;
  return options;
}

Collective sum_of(std::vector<float>& values) {
  Collective call;
  call.kind = CollectiveKind::all_reduce;
  call.input = call.output = values.data();
  call.count = values.size();
  call.type = DataType::f32;
  return call;
}

struct Failures : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, Failures, testing::Values("shm", "tcp", "hosts"));

// Each rank in `bodies` exits with 0 if it saw what it should.
int complain(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  return 1;
}

// Empty: the error names that rank, the operation by its number and kind, and how far who told it was: "step 1 of 3".
std::string unnamed(const Communicator& group, const Status& status, int rank, std::uint64_t operation,
                    CollectiveKind kind = CollectiveKind::all_reduce) {
  const CollectiveFailure& failure = group.failure();
  if (status || failure.status.to_string() != status.to_string()) return "the failure is another";
  if (failure.rank != rank) return "the rank at fault is " + std::to_string(failure.rank);
  if (failure.operation != operation) return "the operation is " + std::to_string(failure.operation);
  unsigned step = 0, steps = 0;
  if (std::sscanf(failure.phase.c_str(), "step %u of %u", &step, &steps) != 2 || step < 1 || step > steps)
    return "the phase is '" + failure.phase + "'";
  for (const std::string& words :
       {"rank " + std::to_string(rank),
        "operation " + std::to_string(operation) + " (" + std::string(to_string(kind)) + "), " + failure.phase})
    if (status.message().find(words) == std::string::npos) return "it does not say '" + words + "'";
  return {};
}
int complain(const std::string& what, const Status& status) {
  return complain(what.c_str(), status);
}

TEST_P(Failures, AKilledRankIsNamedAndTheOthersGoOn) {
  const auto ends = run_processes(failing(4, GetParam(), std::chrono::minutes(10)), [](Engine&, Communicator& group) {
    std::vector<float> values(1000, 1);
    for (int i = 0; i < 3; ++i)
      if (const Status status = group.run(sum_of(values)); !status) return complain("before", status);
    if (group.rank() == 2) ::raise(SIGKILL);
    const Status status = group.run(sum_of(values));
    if (const auto lacks = unnamed(group, status, 2, kJoining + 4); !lacks.empty()) return complain(lacks, status);
    if (group.run({}).code() != status.code()) return complain("later", status);
    auto rest = group.shrink();
    if (!rest) return complain("shrink", rest.status());
    std::vector<float> ones(100, 1);
    if (const Status again = rest->run(sum_of(ones)); !again) return complain("after", again);
    return rest->size() == 3 && ones[99] == 3 ? 0 : 2;
  });
  ASSERT_EQ(ends.size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ends[rank].well, rank != 2) << "rank " << rank << ": " << ends[rank].said;
}

// What the others sent before they gave up has arrived: it does not make the late rank's call end well.
TEST_P(Failures, ARankThatComesAfterTheOthersGaveUpGetsTheirError) {
  const auto ends =
      run_processes(failing(2, GetParam(), std::chrono::minutes(10)), [](Engine& engine, Communicator& group) {
        if (const Status status = group.run({}); !status) return complain("before", status);
        Collective barrier;
        barrier.timeout = std::chrono::milliseconds(300);
        if (group.rank() == 1)  // comes later than that, but its engine works meanwhile
          (void)engine.wait_counter(4000, 1, std::chrono::milliseconds(1500));
        const Status status = group.run(barrier);
        const auto lacks = unnamed(group, status, 1, kJoining + 2, CollectiveKind::barrier);
        return lacks.empty() ? 0 : complain(lacks, status);
      });
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].well) << "rank " << rank << ": " << ends[rank].said;
}

// As everywhere, 0 or less has passed: a program that gives what is left of its time is told when nothing is.
TEST_P(Failures, ATimeoutThatHasPassedEndsTheOperationAtOnceAndItsRankIsNamed) {
  for (const auto left : {std::chrono::microseconds(0), std::chrono::microseconds(-1'000'000)}) {
    const auto ends =
        run_processes(failing(2, GetParam(), std::chrono::minutes(10)), [left](Engine&, Communicator& group) {
          if (const Status status = group.run({}); !status) return complain("before", status);
          Collective barrier;
          if (group.rank() == 1) barrier.timeout = left;
          const Status status = group.run(barrier);
          if (status.code() != ErrorCode::deadline_exceeded) return complain("another error", status);
          if (group.rank() == 1 && status.message().find("had passed") == std::string::npos)
            return complain("it does not say why", status);
          const auto lacks = unnamed(group, status, 1, kJoining + 2, CollectiveKind::barrier);
          return lacks.empty() ? 0 : complain(lacks, status);
        });
    for (std::size_t rank = 0; rank < ends.size(); ++rank)
      EXPECT_TRUE(ends[rank].well) << "rank " << rank << ": " << ends[rank].said;
  }
}

// Its memory is the engine's: a rank that goes on after close() gets an error, and the others are told.
TEST_P(Failures, ARankWhoseEngineWasClosedGetsAnError) {
  const auto ends =
      run_processes(failing(3, GetParam(), std::chrono::minutes(10)), [](Engine& engine, Communicator& group) {
        std::vector<float> values(1000, 1);
        if (const Status status = group.run(sum_of(values)); !status) return complain("before", status);
        if (group.rank() != 2) {
          Status status;  // rank 2 may have sent its part of the first
          for (int i = 0; i < 2 && status; ++i) status = group.run(sum_of(values));
          return status || group.failure().rank != 2 ? complain("the others", status) : 0;
        }
        const auto id = group.start(sum_of(values));
        if (!id) return complain("start", id.status());
        const bool ended = group.test(*id);  // the others may have come as soon
        engine.close();
        if (!group.test(*id)) return complain("test", {ErrorCode::timed_out, "it goes on"});
        if (const Status status = group.wait(*id); status.code() != (ended ? ErrorCode::ok : ErrorCode::closed))
          return complain("wait", status);
        if (const Status status = group.run(sum_of(values)); status.code() != ErrorCode::closed)
          return complain("run", status);
        if (const auto rest = group.shrink(); rest || rest.status().code() != ErrorCode::closed)
          return complain("shrink", rest.status());
        if (const auto part = group.split(0, 0); part || part.status().code() != ErrorCode::closed)
          return complain("split", part.status());
        return engine.is_open() ? 2 : 0;
      });
  ASSERT_EQ(ends.size(), 3U);
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(ends[rank].well) << "rank " << rank << ": " << ends[rank].said;
}

// Whatever a deadline leaves time for, what is said of a rank is so.
TEST_P(Failures, AShortDeadlineSaysNothingFalseOfALateRank) {
  for (const auto timeout :
       {std::chrono::microseconds(20'000), std::chrono::microseconds(3'000), std::chrono::microseconds(1)}) {
    std::atomic<bool> told{false};
    GroupOptions options = failing(2, GetParam(), std::chrono::minutes(10));
    options.progress = Progress::threads;
    run_group(options, [&](Engine&, Communicator& group) {
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(group.run({}));
      if (group.rank() == 1) {
        while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      Collective call;
      call.timeout = timeout;
      const Status status = group.run(call);
      told = true;
      EXPECT_EQ(status.code(), ErrorCode::deadline_exceeded);
      EXPECT_EQ(status.message().find("nor any before"), std::string::npos) << status.to_string();
      const bool read = status.message().find("never entered it; it was last in operation") != std::string::npos;
      const bool unread = status.message().find("too short to ask") != std::string::npos ||
                          status.message().find("does not answer") != std::string::npos;
      EXPECT_TRUE(read || unread) << status.to_string();
    });
  }
}

// The peer's death by time-out is the engine's bound here; the operation's own is longer.
TEST_P(Failures, AFrozenRankIsNamedAndTheOthersGoOn) {
  GroupOptions options = failing(3, GetParam(), std::chrono::minutes(10));
  options.peer_timeout = std::chrono::seconds(4);  // a loaded machine's other ranks answer within it
  const auto ends = run_processes(options, [](Engine&, Communicator& group) {
    std::vector<float> values(1000, 1);
    if (const Status status = group.run(sum_of(values)); !status) return complain("before", status);
    if (group.rank() == 1) {
      ::raise(SIGSTOP);
      return 3;
    }
    const Status status = group.run(sum_of(values));
    if (const auto lacks = unnamed(group, status, 1, kJoining + 2); !lacks.empty()) return complain(lacks, status);
    const int frozen[] = {1};
    auto rest = group.shrink(frozen);
    if (!rest) return complain("shrink", rest.status());
    std::vector<float> ones(100, 1);
    if (const Status again = rest->run(sum_of(ones)); !again) return complain("after", again);
    return rest->size() == 2 && ones[99] == 2 ? 0 : 2;
  });
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_TRUE(ends[0].well) << ends[0].said;
  EXPECT_TRUE(ends[2].well) << ends[2].said;
}

TEST_P(Failures, AnAbsentRankIsNamedAtTheDeadline) {
  std::atomic<int> told{0};
  run_group(failing(4, GetParam(), std::chrono::minutes(10)), [&](Engine& engine, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    std::vector<float> values(10, 1);
    Collective call = sum_of(values);
    call.timeout = std::chrono::seconds(3);
    if (group.rank() == 3) {  // alive, and elsewhere
      for (int i = 0; told < 3 && i < 100'000; ++i) (void)engine.wait_notification(std::chrono::milliseconds(1));
      return;
    }
    const Status status = group.run(call);
    ++told;
    EXPECT_EQ(status.code(), ErrorCode::deadline_exceeded) << status.to_string();
    EXPECT_EQ(unnamed(group, status, 3, kJoining + 2), "") << status.to_string();
    const std::string where = "never entered it; it was last in operation " + std::to_string(kJoining + 1);
    EXPECT_NE(status.message().find(where), std::string::npos) << status.to_string();
  });
}

// One that had no turn while its deadline came and passed asks then.
TEST_P(Failures, AnAbsentRankIsNamedByWhoWasAwayAtItsDeadline) {
  std::atomic<bool> told{false};
  run_group(failing(2, GetParam(), std::chrono::minutes(10)), [&](Engine& engine, Communicator& group) {
    ASSERT_TRUE(group.run({}));
    if (group.rank() == 1) {  // alive, and elsewhere
      while (!told) (void)engine.wait_notification(std::chrono::milliseconds(1));
      return;
    }
    Collective call;
    call.timeout = std::chrono::seconds(1);
    const auto started = group.start(call);
    ASSERT_TRUE(started) << started.status().to_string();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    const Status status = group.wait(*started);
    told = true;
    EXPECT_EQ(status.code(), ErrorCode::deadline_exceeded) << status.to_string();
    EXPECT_EQ(group.failure().rank, 1) << status.to_string();
  });
}

// Rank 1 calls `other`; all ranks hear what both called.
void expect_mismatch(const Collective& usual, const Collective& other, const char* words) {
  run_group(failing(4, "shm", std::chrono::minutes(10)), [&](Engine&, Communicator& group) {
    std::vector<float> input(64), output(64);
    Collective call = group.rank() == 1 ? other : usual;
    call.input = input.data();
    call.output = output.data();
    const Status status = group.run(call);
    EXPECT_EQ(status.code(), ErrorCode::invalid_argument) << status.to_string();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.to_string();
    EXPECT_FALSE(group.run({}));
    auto again = group.shrink();
    ASSERT_TRUE(again) << again.status().to_string();
    EXPECT_EQ(again->size(), 4);
    EXPECT_TRUE(again->run({}));
  });
}

Collective call_of(CollectiveKind kind, std::size_t count, DataType type, Reduction reduction, int root) {
  Collective call;
  call.kind = kind;
  call.count = count;
  call.type = type;
  call.reduction = reduction;
  call.root = root;
  return call;
}

TEST(Mismatch, OfTheOperationIsNamed) {
  expect_mismatch(call_of(CollectiveKind::all_reduce, 8, DataType::f32, Reduction::sum, 0),
                  call_of(CollectiveKind::broadcast, 8, DataType::f32, Reduction::sum, 0), "broadcast of 8 f32");
}
TEST(Mismatch, OfTheTypeIsNamed) {
  expect_mismatch(call_of(CollectiveKind::all_reduce, 8, DataType::f32, Reduction::sum, 0),
                  call_of(CollectiveKind::all_reduce, 8, DataType::i32, Reduction::sum, 0), "i32");
}
TEST(Mismatch, OfTheCountIsNamed) {
  expect_mismatch(call_of(CollectiveKind::all_gather, 8, DataType::f32, Reduction::sum, 0),
                  call_of(CollectiveKind::all_gather, 9, DataType::f32, Reduction::sum, 0), "of 9 f32");
}
TEST(Mismatch, OfTheReductionIsNamed) {
  expect_mismatch(call_of(CollectiveKind::reduce_scatter, 8, DataType::f32, Reduction::sum, 0),
                  call_of(CollectiveKind::reduce_scatter, 8, DataType::f32, Reduction::max, 0), "(max)");
}
TEST(Mismatch, OfTheRootIsNamed) {
  expect_mismatch(call_of(CollectiveKind::broadcast, 8, DataType::f32, Reduction::sum, 0),
                  call_of(CollectiveKind::broadcast, 8, DataType::f32, Reduction::sum, 1), "root 1");
}

TEST(Mismatch, BadCallsAreRefusedAndHurtNobody) {
  run_group(failing(2, "shm", std::chrono::minutes(10)), [](Engine&, Communicator& group) {
    std::vector<float> values(16);
    Collective call = sum_of(values);
    call.output = values.data() + 1;
    EXPECT_EQ(group.run(call).code(), ErrorCode::invalid_argument);  // overlaps
    call = sum_of(values);
    call.input = nullptr;
    EXPECT_EQ(group.run(call).code(), ErrorCode::invalid_argument);
    call = sum_of(values);
    call.algorithm = Algorithm::binomial;
    EXPECT_EQ(group.run(call).code(), ErrorCode::invalid_argument);
    call = call_of(CollectiveKind::broadcast, 1, DataType::f32, Reduction::sum, 2);
    EXPECT_EQ(group.run(call).code(), ErrorCode::invalid_argument);
    call = sum_of(values);
    call.count = ~std::size_t{0};
    EXPECT_EQ(group.run(call).code(), ErrorCode::invalid_argument);
    call = call_of(CollectiveKind::all_to_allv, 0, DataType::f32, Reduction::sum, 0);
    EXPECT_EQ(group.run(call).code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(group.run(sum_of(values)));
  });
}

TEST(Join, ARankThatIsNotThereIsNamed) {
  auto engine = open_engine({});
  ASSERT_TRUE(engine);
  CommunicatorOptions options;
  options.timeout = std::chrono::milliseconds(300);
  const std::vector<std::string> addresses{engine->address(), "127.0.0.1:1"};
  const auto group = Communicator::create(*engine, 0, addresses, options);
  ASSERT_FALSE(group);
  EXPECT_NE(group.status().message().find("rank 1"), std::string::npos) << group.status().to_string();
}

// The time that a late rank takes to join is not taken from the operations.
TEST_P(Failures, OperationsHaveTheirWholeTimeoutHoweverLateARankJoined) {
  std::vector<Engine> engines;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    EngineOptions wanted;
    wanted.transports = failing(2, GetParam(), {}).transports;
    engines.push_back(open_engine(wanted).value());
    addresses.push_back(engines.back().address());
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const auto late = std::chrono::milliseconds(rank == 1 ? 2500 : 0);
      std::this_thread::sleep_for(late);
      auto group = Communicator::create(engines[static_cast<std::size_t>(rank)], rank, addresses,
                                        {.timeout = std::chrono::seconds(4)});
      ASSERT_TRUE(group) << group.status().to_string();
      std::this_thread::sleep_for(late);
      const Status status = group->run({});
      EXPECT_TRUE(status) << status.to_string();
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fairway
