#include "c/collective.h"
#include "process/gpu_collectives/gpu_rank.h"

// Operations on GPU memory through the C ABI.
namespace fairway {
namespace {

using namespace std::chrono_literals;

bool is_well(GpuRank& rank, fairway_code code, fairway_error* error, const char* what) {
  if (code == FAIRWAY_OK) return true;
  (void)rank.fail(std::string(what) + ": " + fairway_error_text(error));
  fairway_error_free(error);
  return false;
}

void sums(GpuRank& rank, fairway_communicator& group) {
  fairway_error* error = nullptr;
  fairway_collective sum;
  fairway_collective_init(&sum);
  sum.kind = FAIRWAY_ALL_REDUCE;
  sum.type = FAIRWAY_I32;
  sum.count = 100;
  std::byte* const place = rank.memory(400);
  rank.fill(place, std::vector<std::byte>(400, std::byte{1}));
  sum.input = sum.output = place;
  const GpuStream stream = rank.stream();
  if (fairway_communicator_stream_run(&group, &sum, stream, &error) != FAIRWAY_INVALID_ARGUMENT)
    return (void)rank.fail("an operation before use_gpu");
  if (std::string(fairway_error_text(error)).find("use_gpu") == std::string::npos)
    (void)rank.fail(fairway_error_text(error));
  fairway_error_free(error);
  if (!is_well(rank, fairway_communicator_use_gpu(&group, rank.gpu, &error), error, "use_gpu")) return;
  if (!is_well(rank, fairway_communicator_stream_run(&group, &sum, stream, &error), error, "stream_run")) return;
  if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
  if (!is_well(rank, fairway_communicator_stream_status(&group, &error), error, "stream_status")) return;
  if (get(rank.read(place, 400).data(), 99, DataType::i32) != 2 * 0x01010101) return (void)rank.fail("a sum is wrong");
  // One that fails: the ranks' counts differ.
  sum.count = rank.group.rank() == 0 ? 100 : 99;
  if (!is_well(rank, fairway_communicator_stream_run(&group, &sum, stream, &error), error, "one that fails")) return;
  if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
  if (fairway_communicator_stream_status(&group, nullptr) != FAIRWAY_INVALID_ARGUMENT)
    return (void)rank.fail("counts that differ are no error");
  fairway_failure* const why = fairway_communicator_failure(&group);
  if (why == nullptr || why->rank != 1 - rank.group.rank()) (void)rank.fail("blames another");
  fairway_failure_free(why);
}

TEST(GpuC, OperationsRunAndFailOnStreams) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  GroupOptions options;
  options.transports = {"shm", "cuda"};
  options.communicator.timeout = 10min;
  const auto ends = run_processes(options, [](Engine& engine, Communicator& communicator) {
    fairway_engine lent{nullptr, engine, {}};
    fairway_communicator group{std::move(communicator), &lent};
    GpuRank rank(group.communicator);
    sums(rank, group);
    return rank.well ? 0 : 1;
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.well) << end.said;
}

}  // namespace
}  // namespace fairway
