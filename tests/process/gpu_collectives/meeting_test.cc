#include <cstdlib>
#include <string>
#include <thread>

#include "process/gpu_collectives/tries.h"

// Operations before which one warp waits for the other ranks (GpuOptions::meet_from).
namespace fairway {
namespace {

using namespace std::chrono_literals;

constexpr const char* kMeets = "one warp waits";

Collective sum_at(std::byte* place, std::size_t count) {
  Collective call{.kind = CollectiveKind::all_reduce, .count = count, .type = DataType::i32};
  call.input = call.output = place;
  return call;
}

unsigned blocks_that_run() {
  void* const driver = ::dlopen(FAIRWAY_STANDIN_CUDA, RTLD_NOW | RTLD_NOLOAD);
  const auto running = reinterpret_cast<unsigned (*)()>(
      driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_blocks_that_run"));
  return running == nullptr ? ~0U : running();
}

struct GpuMeeting : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMeeting, testing::Values(1, 2, 3, 5));

TEST_P(GpuMeeting, EveryKindIsRight) {
  run_gpu_ranks(GetParam(), 30s,
                [](GpuRank& rank) {
                  Tries tries(rank);
                  for (const CollectiveKind kind : kKinds)
                    for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{3001}})
                      for (const bool in_place : {false, true})
                        if (!tries.run({kind, DataType::f32, Reduction::sum, count, in_place})) return;
                },
                -1, {.nccl = NcclUse::never, .meet_from = 1});
}

TEST(GpuMeetings, AreBeforeWhatIsLongEnough) {
  constexpr std::uint64_t kFrom = 4096;
  const auto body = [](GpuRank& rank) {
    for (const std::size_t count : {std::size_t{1023}, std::size_t{1024}, std::size_t{100'000}}) {
      const std::string said = rank.group.explain_stream(sum_at(rank.memory(count * 4), count));
      const bool meets = said.find(kMeets) != std::string::npos;
      if (meets != (count * 4 >= kFrom && rank.group.size() > 1)) (void)rank.fail(said);
    }
  };
  run_gpu_ranks(2, 30s, body, -1, {.nccl = NcclUse::never, .meet_from = kFrom});
  run_gpu_ranks(1, 30s, body, -1, {.nccl = NcclUse::never, .meet_from = kFrom});
}

// The kernel that moves has many blocks, and begins only once all ranks are there.
TEST(GpuMeetings, WhoWaitsHoldsOneBlock) {
  const char* const driver = std::getenv("FAIRWAY_CUDA_DRIVER");
  if (driver != nullptr && std::string(driver) != FAIRWAY_STANDIN_CUDA)
    GTEST_SKIP() << "only the stand-in for the driver counts the blocks that run";
  const auto body = [](bool meets) {
    return [meets](GpuRank& rank) {
      constexpr std::size_t kCount = 300'000;
      const GpuStream stream = rank.stream();
      const Collective call = sum_at(rank.memory(kCount * 4), kCount);
      auto hosts = rank.group.split(0, rank.group.rank());  // whose calls have an order of their own
      if (!rank.expect(hosts.status(), "split")) return;
      if (rank.group.rank() == 0) {
        if (!rank.expect(rank.group.stream_run(call, stream), "the first rank")) return;
        while (blocks_that_run() == 0) std::this_thread::yield();
        std::this_thread::sleep_for(20ms);  // in which more could begin
        const unsigned blocks = blocks_that_run();
        if (meets ? blocks != 1 : blocks < 8) return (void)rank.fail(std::to_string(blocks) + " blocks wait");
      }
      if (!rank.expect(hosts->run({}), "a barrier of the hosts")) return;
      if (rank.group.rank() != 0 && !rank.expect(rank.group.stream_run(call, stream), "the others")) return;
      if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
      (void)rank.expect(rank.group.stream_status(), "afterwards");
    };
  };
  run_gpu_ranks(3, 30s, body(true), -1, {.nccl = NcclUse::never, .meet_from = 1});
  run_gpu_ranks(3, 30s, body(false), -1, {.nccl = NcclUse::never});
}

TEST(GpuMeetings, ALateRankIsNamedThere) {
  run_gpu_ranks(2, 20s,
                [](GpuRank& rank) {
                  const GpuStream stream = rank.stream();
                  Collective call = sum_at(rank.memory(400'000), 100'000);
                  if (!rank.expect(rank.group.stream_run(call, stream), "before")) return;
                  if (!rank.synchronize(stream) || !rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
                  if (rank.group.rank() == 1) return (void)rank.group.run({});  // it is told by the other's alarm
                  call.timeout = 300ms;
                  const auto before = std::chrono::steady_clock::now();
                  if (!rank.expect(rank.group.stream_run(call, stream), "the one that fails")) return;
                  if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
                  const std::string said = rank.group.stream_status().message();
                  if (rank.group.failure().rank != 1 || said.find("never entered") == std::string::npos ||
                      said.find("number 3 on its stream") == std::string::npos)  // behind a meeting and a sum
                    return (void)rank.fail(said);
                  // The sum behind the meeting ends at once.
                  if (std::chrono::steady_clock::now() - before > 5s) (void)rank.fail("it took long");
                },
                -1, {.nccl = NcclUse::never, .meet_from = 1});
}

TEST(GpuMeetings, ARankThatDoesNotMeetHasCalledSomethingElse) {
  GroupOptions options;
  options.size = 2;
  options.transports = {"shm", "cuda"};
  options.communicator.timeout = 20s;
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  const auto ends = run_processes(options, [&](Engine&, Communicator& communicator) {
    GpuRank rank(communicator);
    const GpuOptions given{.nccl = NcclUse::never, .meet_from = communicator.rank() == 0 ? 1U : 0U};
    if (!rank.expect(communicator.use_gpu(rank.gpu, given), "use_gpu")) return 1;
    const GpuStream stream = rank.stream();
    if (!rank.expect(communicator.stream_run(sum_at(rank.memory(400), 100), stream), "a sum")) return 1;
    if (!rank.synchronize(stream)) return 1;
    const std::string said = communicator.stream_status().to_string();
    if (said.find("something else") == std::string::npos && said.find("gave up") == std::string::npos)
      (void)rank.fail(said);
    return rank.well ? 0 : 1;
  });
  for (const auto& end : ends) EXPECT_TRUE(end.well) << end.said;
}

}  // namespace
}  // namespace fairway
