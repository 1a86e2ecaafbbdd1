#include <array>
#include <utility>

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

// The words of a refusal, after which the group goes on.
bool is_refused(GpuRank& rank, fairway_code code, fairway_code expected, fairway_error*& error, const char* word) {
  const std::string text = error == nullptr ? "no error" : fairway_error_text(error);
  fairway_error_free(std::exchange(error, nullptr));
  return (code == expected && text.find(word) != std::string::npos) || rank.fail(std::string(word) + ": " + text);
}

void shows(GpuRank& rank, fairway_communicator& group) {
  constexpr std::size_t kOwn = 4096;
  fairway_error* error = nullptr;
  std::byte* const place = rank.memory(3 * kOwn);
  const auto mine = static_cast<std::byte>(rank.group.rank() + 1);
  rank.fill(place, std::vector<std::byte>(kOwn, mine));
  std::uint64_t window = 9;
  const auto show = [&](void* memory, std::uint64_t bytes) {
    window = 9;
    return fairway_communicator_register_window(&group, memory, bytes, &window, &error);
  };
  const auto hide = [&](std::uint64_t number) {
    return fairway_communicator_deregister_window(&group, number, &error);
  };
  if (!is_refused(rank, show(place, 3 * kOwn), FAIRWAY_INVALID_ARGUMENT, error, "use_gpu")) return;
  if (window != 0) return (void)rank.fail("a number of no window");
  if (!is_refused(rank, hide(1), FAIRWAY_NOT_FOUND, error, "no window")) return;
  if (!is_well(rank, fairway_communicator_use_gpu(&group, rank.gpu, &error), error, "use_gpu")) return;
  if (!is_refused(rank, show(nullptr, kOwn), FAIRWAY_INVALID_ARGUMENT, error, "needs an address")) return;
  if (!is_refused(rank, show(place, 0), FAIRWAY_INVALID_ARGUMENT, error, "one byte")) return;
  std::array<std::byte, 64> host = {};
  if (!is_refused(rank, show(host.data(), host.size()), FAIRWAY_INVALID_ARGUMENT, error, "GPU")) return;
  if (!is_well(rank, show(place, 3 * kOwn), error, "register_window")) return;
  if (window != 1) return (void)rank.fail("the first window has another number");
  fairway_collective gather;
  fairway_collective_init(&gather);
  gather.kind = FAIRWAY_ALL_GATHER;
  gather.type = FAIRWAY_U8;
  gather.count = kOwn;
  gather.input = place;
  gather.output = place + kOwn;
  const GpuStream stream = rank.stream();
  if (!is_well(rank, fairway_communicator_stream_run(&group, &gather, stream, &error), error, "all_gather")) return;
  if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
  if (!is_well(rank, fairway_communicator_stream_status(&group, &error), error, "stream_status")) return;
  const std::vector<std::byte> every = rank.read(place + kOwn, 2 * kOwn);
  if (every.front() != std::byte{1} || every.back() != std::byte{2}) return (void)rank.fail("wrong bytes");
  if (!is_refused(rank, hide(2), FAIRWAY_NOT_FOUND, error, "no window 2")) return;
  if (!is_refused(rank, hide(0), FAIRWAY_NOT_FOUND, error, "no window 0")) return;
  if (!is_well(rank, hide(window), error, "deregister_window")) return;
  if (!is_refused(rank, hide(window), FAIRWAY_NOT_FOUND, error, "no window 1")) return;
  if (!is_well(rank, show(place, kOwn), error, "another window")) return;
  if (window != 2) (void)rank.fail("a number comes again");
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

void run_in_c(const std::function<void(GpuRank&, fairway_communicator&)>& body) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  GroupOptions options;
  options.transports = {"shm", "cuda"};
  options.communicator.timeout = 10min;
  const auto ends = run_processes(options, [&body](Engine& engine, Communicator& communicator) {
    fairway_engine lent{nullptr, engine, {}};
    fairway_communicator group{std::move(communicator), &lent};
    GpuRank rank(group.communicator);
    body(rank, group);
    return rank.well ? 0 : 1;
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.well) << end.said;
}

TEST(GpuC, OperationsRunAndFailOnStreams) {
  run_in_c(sums);
}

TEST(GpuC, WindowsBeginAndEndAndBadOnesAreRefused) {
  run_in_c(shows);
}

}  // namespace
}  // namespace fairway
