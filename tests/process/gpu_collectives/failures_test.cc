#include <csignal>
#include <thread>

#include <unistd.h>

#include "process/gpu_collectives/gpu_rank.h"

// Operations on GPUs that cannot end well end all the same, with an error that names the rank, and leave the context
// and the other ranks usable.
namespace fairway {
namespace {

using namespace std::chrono_literals;

Collective sum_of(std::byte* place, std::size_t count) {
  Collective call{.kind = CollectiveKind::all_reduce, .count = count, .type = DataType::i32};
  call.input = call.output = place;
  return call;
}

// The stream has ended, the context lives, and the error names the rank with those words.
bool names(GpuRank& rank, GpuStream stream, int at_fault, const char* words) {
  if (!rank.synchronize(stream)) return rank.fail("the context is broken");
  const Status status = rank.group.stream_status();
  if (status || rank.group.failure().rank != at_fault) return rank.fail("blames " + status.to_string());
  if (status.message().find(words) == std::string::npos) return rank.fail("says " + status.to_string());
  if (rank.group.stream_run({}, stream).code() != status.code()) return rank.fail("goes on");
  std::byte* const place = rank.memory(64);
  rank.fill(place, std::vector<std::byte>(64, std::byte{5}));
  return rank.read(place, 64)[63] == std::byte{5} ? true : rank.fail("the GPU cannot be used");
}

// The ranks but that one go on.
bool go_on_without(GpuRank& rank, int without, GpuStream stream) {
  const int gone[] = {without};
  auto rest = rank.group.shrink(gone);
  if (!rest) return rank.expect(rest.status(), "shrink");
  if (!rank.expect(rest->use_gpu(rank.gpu), "use_gpu afterwards")) return false;
  std::byte* const place = rank.memory(4);
  std::vector<std::byte> value(4);
  put(value.data(), 0, DataType::i32, 1);
  rank.fill(place, value);
  if (!rank.expect(rest->stream_run(sum_of(place, 1), stream), "afterwards")) return false;
  if (!rank.synchronize(stream) || !rank.expect(rest->stream_status(), "afterwards")) return false;
  const double sum = get(rank.read(place, 4).data(), 0, DataType::i32);
  return sum == rest->size() ? true : rank.fail("a sum afterwards is " + std::to_string(sum));
}

struct GpuFailures : testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Counts, GpuFailures, testing::Values(10, 100'000));

TEST_P(GpuFailures, ARankThatNeverEntersIsNamedAtTheDeadline) {
  run_gpu_ranks(3, 20s, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    std::byte* const place = rank.memory(GetParam() * 4);
    Collective call = sum_of(place, GetParam());
    for (int i = 0; i < 2; ++i)
      if (!rank.expect(rank.group.stream_run(call, stream), "before")) return;
    if (!rank.synchronize(stream) || !rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    if (rank.group.rank() == 2) {  // it is told by the others' alarm
      if (rank.group.run({}).code() != ErrorCode::deadline_exceeded || rank.group.failure().rank != 2)
        (void)rank.fail("the late rank: " + rank.group.failure().status.to_string());
      return;
    }
    call.timeout = 300ms;
    const auto before = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; ++i)  // the later ones end at once
      if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
    if (!names(rank, stream, 2, "rank 2")) return;
    if (rank.group.failure().status.message().find("never entered") == std::string::npos &&
        rank.group.failure().status.message().find("gave up because of rank 2") == std::string::npos)
      return (void)rank.fail(rank.group.failure().status.to_string());
    const auto took = std::chrono::steady_clock::now() - before;
    if (took > 5s) return (void)rank.fail("it took long");
    (void)go_on_without(rank, 2, stream);
  });
}

TEST(GpuFailure, OneThatGivesUpTellsTheOthers) {
  run_gpu_ranks(3, 20s, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    Collective call = sum_of(rank.memory(400), 100);
    if (!rank.expect(rank.group.stream_run(call, stream), "before") || !rank.synchronize(stream)) return;
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    if (rank.group.rank() == 2) return (void)rank.group.run({});
    if (rank.group.rank() == 0) call.timeout = 200ms;  // rank 1 would wait for 20 s
    if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
    (void)names(rank, stream, 2, rank.group.rank() == 0 ? "rank 2" : "gave up because of rank 2");
  });
}

// Of one count less, and of so many more that it goes another way.
TEST(GpuFailure, CallsThatDifferAreFoundAtOnce) {
  for (const std::size_t other : {std::size_t{99}, std::size_t{100'000}})
    run_gpu_ranks(2, 10min, [other](GpuRank& rank) {
      const GpuStream stream = rank.stream();
      std::byte* const place = rank.memory(400'000);
      const Collective call = sum_of(place, rank.group.rank() == 0 ? 100 : other);
      if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
      if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
      const Status status = rank.group.stream_status();
      if (status.code() != ErrorCode::invalid_argument) (void)rank.fail(status.to_string());
    });
}

TEST(GpuFailure, AKilledRankIsNamed) {
  run_gpu_ranks(
      3, 20s,
      [](GpuRank& rank) {
        const GpuStream stream = rank.stream();
        Collective call = sum_of(rank.memory(400), 100);
        if (!rank.expect(rank.group.stream_run(call, stream), "before") || !rank.synchronize(stream)) return;
        if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
        if (rank.group.rank() == 1) ::raise(SIGKILL);
        call.timeout = 500ms;
        if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
        if (names(rank, stream, 1, "rank 1")) (void)go_on_without(rank, 1, stream);
      },
      1);
}

TEST(GpuFailure, AbortEndsAKernelThatWaits) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    const Collective call = sum_of(rank.memory(400), 100);
    if (rank.group.rank() == 1) {
      (void)rank.group.run({});
      return;
    }
    if (!rank.expect(rank.group.stream_run(call, stream), "the one that waits")) return;
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      rank.group.abort();
    });
    const bool well = rank.synchronize(stream);
    other.join();
    const Status status = rank.group.stream_status();
    if (!well || status.code() != ErrorCode::cancelled) (void)rank.fail(status.to_string());
  });
}

TEST(GpuFailure, ARankWithoutThatGpuIsNamedToAll) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  GroupOptions options;
  options.size = 3;
  options.transports = {"shm", "cuda"};
  const auto ends = run_processes(options, [](Engine&, Communicator& group) {
    const Status early = group.stream_run({}, nullptr);
    if (early.message().find("use_gpu") == std::string::npos) return 1;
    const Status status = group.use_gpu(group.rank() == 1 ? 99 : 0);
    if (status.code() != ErrorCode::invalid_argument || status.message().find("no GPU 99") == std::string::npos)
      return 2;
    if (group.rank() != 1 && status.message().find("rank 1") == std::string::npos) return 3;
    return group.use_gpu(0) ? 0 : 4;
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.well) << end.said;
}

// Who calls again with the GPU it has takes part as well: else the others' agreement would meet its next operation.
TEST(GpuFailure, ARankThatTakesAnotherGpuLaterIsNamedToAllAndTheGroupGoesOn) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  ::setenv("FAIRWAY_STANDIN_DEVICES", "8", 0);
  GroupOptions options;
  options.size = 2;
  options.transports = {"shm", "cuda"};
  options.communicator.timeout = 60s;
  const auto ends = run_processes(options, [](Engine&, Communicator& group) {
    if (!group.use_gpu(group.rank()) || !group.use_gpu(group.rank())) return 1;
    const Status status = group.use_gpu(group.rank() == 1 ? 7 : group.rank());
    if (status.code() != ErrorCode::invalid_argument || status.message().find("uses GPU 1") == std::string::npos)
      return 2;
    if (group.rank() != 1 && status.message().find("rank 1") == std::string::npos) return 3;
    std::int32_t own = group.rank(), all[2] = {};
    const Collective gather{.kind = CollectiveKind::all_gather, .input = &own, .output = all, .count = sizeof own};
    return group.run(gather) && all[0] == 0 && all[1] == 1 ? 0 : 4;
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.well) << end.said;
}

// As host memory says it: who reads that a rank is gone looks for a crash.
TEST(GpuFailure, ARankThatIsStoppedIsSaidNotToAnswer) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  GroupOptions options;
  options.transports = {"shm", "cuda"};
  options.progress = Progress::threads;
  options.peer_timeout = 1000ms;
  options.communicator.timeout = 60s;
  const auto ends = run_processes(options, [](Engine&, Communicator& communicator) {
    GpuRank rank(communicator);
    if (!rank.expect(communicator.use_gpu(rank.gpu), "use_gpu")) return 1;
    std::int32_t own = ::getpid(), all[2] = {};
    const Collective pids{.kind = CollectiveKind::all_gather, .input = &own, .output = all, .count = sizeof own};
    if (!rank.expect(communicator.run(pids), "a gather of the hosts")) return 1;
    if (communicator.rank() == 1) {
      ::raise(SIGSTOP);
      return 0;
    }
    const GpuStream stream = rank.stream();
    (void)rank.expect(communicator.stream_run(sum_of(rank.memory(400), 100), stream), "a sum");
    (void)names(rank, stream, 1, "no heartbeat");
    ::kill(all[1], SIGCONT);
    return rank.well ? 0 : 1;
  });
  EXPECT_TRUE(ends[0].well) << ends[0].said;
}

}  // namespace
}  // namespace fairway
