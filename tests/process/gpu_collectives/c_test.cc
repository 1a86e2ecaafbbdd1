#include <array>
#include <filesystem>
#include <utility>

#include "c/abi.h"
#include "process/gpu_collectives/nccl_rank.h"

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
  if (!is_well(rank, fairway_communicator_use_gpu(&group, rank.gpu, nullptr, &error), error, "use_gpu")) return;
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
  fairway_gpu_options with_messages;
  fairway_gpu_options_init(&with_messages);
  with_messages.messages = 1;
  if (!is_well(rank, fairway_communicator_use_gpu(&group, rank.gpu, &with_messages, &error), error, "use_gpu")) return;
  if (!is_well(rank, fairway_communicator_stream_run(&group, &sum, stream, &error), error, "stream_run")) return;
  if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
  if (!is_well(rank, fairway_communicator_stream_status(&group, &error), error, "stream_status")) return;
  if (get(rank.read(place, 400).data(), 99, DataType::i32) != 2 * 0x01010101) return (void)rank.fail("a sum is wrong");
  // Each sends the other a part of what it has.
  const int32_t other = 1 - rank.group.rank(), peers[] = {other, other};
  const size_t sizes[] = {40, 40};
  const uint8_t receives[] = {0, 1};
  void* const parts[] = {place, place + 200};
  rank.fill(place, std::vector<std::byte>(40, std::byte{static_cast<unsigned char>(7 + rank.group.rank())}));
  const auto exchange = [&](const int32_t* with) {
    return fairway_communicator_stream_messages(&group, parts, sizes, with, receives, 2, stream, FAIRWAY_OWN_TIMEOUT,
                                                &error);
  };
  if (!is_refused(rank, exchange(nullptr), FAIRWAY_INVALID_ARGUMENT, error, "peers")) return;
  if (!is_well(rank, exchange(peers), error, "messages") || !rank.synchronize(stream)) return;
  if (rank.read(place + 200, 40).back() != static_cast<std::byte>(7 + other))
    return (void)rank.fail("a message is wrong");
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

// A text of the library, or how it was refused.
std::string taken(fairway_code code, char* text, fairway_error*& error) {
  std::string words = code == FAIRWAY_OK ? text : fairway_error_text(error);
  if (code != FAIRWAY_OK && text != nullptr) words = "a text beside an error";
  fairway_free(text);
  fairway_error_free(std::exchange(error, nullptr));
  return words;
}
std::string explained(const fairway_communicator& group, const fairway_collective& call, bool captured = false) {
  fairway_error* error = nullptr;
  char* text = nullptr;
  const fairway_code code = fairway_communicator_explain_stream(&group, &call, captured ? 1 : 0, &text, &error);
  return taken(code, text, error);
}
std::string measured(fairway_communicator& group, bool compare) {
  fairway_error* error = nullptr;
  char* text = nullptr;
  const fairway_code code = fairway_communicator_measure_gpu(&group, 512, compare ? 1 : 0, &text, &error);
  return taken(code, text, error);
}
bool has(GpuRank& rank, const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos || rank.fail("no " + words + " in: " + text);
}
// A communicator of the same ranks that has called use_gpu(). Null: it has failed.
fairway_communicator* another(GpuRank& rank, fairway_communicator& group, const fairway_gpu_options& options) {
  fairway_error* error = nullptr;
  fairway_communicator* made = nullptr;
  if (!is_well(rank, fairway_communicator_split(&group, 0, 0, &made, &error), error, "split")) return nullptr;
  if (is_well(rank, fairway_communicator_use_gpu(made, rank.gpu, &options, &error), error, "use_gpu")) return made;
  fairway_communicator_free(made);
  return nullptr;
}
fairway_gpu_options options_of(std::int32_t nccl) {
  static const std::string library = nccl_library();
  fairway_gpu_options options;
  fairway_gpu_options_init(&options);
  options.nccl = nccl;
  options.nccl_library = library.c_str();
  return options;
}

void reads_short_ones_in_windows(GpuRank& rank, fairway_communicator& group) {
  constexpr std::size_t kOwn = 64;
  fairway_gpu_options options = options_of(FAIRWAY_NCCL_NEVER);
  fairway_error* error = nullptr;
  std::byte* const place = rank.memory(3 * kOwn);
  rank.fill(place, std::vector<std::byte>(kOwn, static_cast<std::byte>(rank.group.rank() + 1)));
  fairway_collective gather;
  fairway_collective_init(&gather);
  gather.kind = FAIRWAY_ALL_GATHER;
  gather.type = FAIRWAY_U8;
  gather.count = kOwn;
  gather.input = place;
  gather.output = place + kOwn;
  for (const std::uint64_t from : {0, 1}) {  // 0: as measured, where so few bytes are sent
    options.windows_from = from;
    fairway_communicator* const one = another(rank, group, options);
    if (one == nullptr) return;
    std::uint64_t window = 0;
    if (!is_well(rank, fairway_communicator_register_window(one, place, 3 * kOwn, &window, &error), error, "a window"))
      return;
    const std::string expected =
        from == 0 ? "by Fairway's kernels: NCCL was not asked for" : "by Fairway, which reads it in window 1";
    if (!has(rank, explained(*one, gather), "all_gather of 128 bytes: " + expected)) return;
    rank.fill(place + kOwn, std::vector<std::byte>(2 * kOwn));
    const GpuStream stream = rank.stream();
    if (!is_well(rank, fairway_communicator_stream_run(one, &gather, stream, &error), error, "all_gather")) return;
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    if (!is_well(rank, fairway_communicator_stream_status(one, &error), error, "stream_status")) return;
    const std::vector<std::byte> every = rank.read(place + kOwn, 2 * kOwn);
    for (std::size_t i = 0; i < every.size(); ++i)
      if (every[i] != static_cast<std::byte>(i / kOwn + 1)) return (void)rank.fail("wrong bytes");
    fairway_communicator_free(one);
  }
}

void goes_by_nccl(GpuRank& rank, fairway_communicator& group) {
  fairway_error* error = nullptr;
  NcclSum sum(rank, 100);
  fairway_collective call;
  fairway_collective_init(&call);
  call.kind = FAIRWAY_ALL_REDUCE;
  call.type = FAIRWAY_I32;
  call.count = 100;
  call.input = call.output = sum.call().output;
  fairway_gpu_options options = options_of(FAIRWAY_NCCL_ALWAYS);
  options.nccl_library = "/nowhere/libnccl.so.2";
  const fairway_code code = fairway_communicator_use_gpu(&group, rank.gpu, &options, &error);
  if (!is_refused(rank, code, FAIRWAY_UNSUPPORTED, error, "/nowhere/libnccl.so.2")) return;
  options = options_of(FAIRWAY_NCCL_ALWAYS);
  for (const bool guarded : {true, false}) {
    options.guarded = guarded ? 1 : 0;
    fairway_communicator* const one = another(rank, group, options);
    if (one == nullptr) return;
    const std::string by = std::string(guarded ? ", guarded" : ", unguarded") + ": it was asked for always";
    if (!has(rank, explained(*one, call), "all_reduce of 400 bytes: by NCCL 2.")) return;
    if (!has(rank, explained(*one, call), by) || !has(rank, explained(*one, call, true), "400 bytes in a graph"))
      return;
    sum.fill();
    const long before = nccl_operations();
    const GpuStream stream = rank.stream();
    if (!is_well(rank, fairway_communicator_stream_run(one, &call, stream, &error), error, "all_reduce")) return;
    if (!rank.synchronize(stream) || !sum.is_right(1, 2)) return;
    if (is_standin() && nccl_operations() != before + 1) return (void)rank.fail("it went the other way");
    fairway_communicator_free(one);
  }
}

// In a folder that the test removes.
void measures(GpuRank& rank, fairway_communicator& group, const std::string& table) {
  fairway_error* error = nullptr;
  fairway_gpu_options options = options_of(FAIRWAY_NCCL_MEASURED);
  options.table = table.c_str();
  if (!has(rank, measured(group, false), "call use_gpu() first")) return;
  if (!is_well(rank, fairway_communicator_use_gpu(&group, rank.gpu, &options, &error), error, "use_gpu")) return;
  fairway_collective call;
  fairway_collective_init(&call);
  call.kind = FAIRWAY_ALL_REDUCE;
  call.type = FAIRWAY_F32;
  call.count = 128;
  if (!has(rank, explained(group, call), "there is no table of this machine")) return;
  const std::string figures = measured(group, false);
  for (const char* word : {"all_reduce", "all_to_all", "graph", "launched", " 512 ", "NCCL 2."})
    if (!has(rank, figures, word)) return;
  if (!has(rank, figures, "kept in " + table)) return;
  if (figures.find("chosen") != std::string::npos) return (void)rank.fail("compared: " + figures);
  if (!has(rank, measured(group, true), "best/it  chosen")) return;
  fairway_communicator* one = another(rank, group, options);  // which reads what was written
  if (one == nullptr || !has(rank, explained(*one, call), "(" + table + ")")) return;
  fairway_communicator_free(one);
  one = another(rank, group, options_of(FAIRWAY_NCCL_NEVER));
  if (one == nullptr || !has(rank, measured(*one, false), "nothing to choose")) return;
  fairway_communicator_free(one);
}

void run_in_c(const std::function<void(GpuRank&, fairway_communicator&)>& body) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  ::setenv("FAIRWAY_STANDIN_DEVICES", "4", 0);
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

TEST(GpuC, WindowsAreReadFromTheSizeThatTheOptionsName) {
  run_in_c(reads_short_ones_in_windows);
}

TEST(GpuC, NcclTakesWhatTheOptionsGiveIt) {
  run_in_c(goes_by_nccl);
}

TEST(GpuC, WaysAreMeasuredAndTheirTableIsRead) {
  std::string folder = (std::filesystem::temp_directory_path() / "fairway-c-ways-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  run_in_c([&](GpuRank& rank, fairway_communicator& group) { measures(rank, group, folder + "/below/table"); });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fairway
