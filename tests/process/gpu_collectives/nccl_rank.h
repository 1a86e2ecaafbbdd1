#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "process/gpu_collectives/gpu_rank.h"

// Ranks whose operations on streams may go by NCCL: the stand-in one, or on a machine with GPUs
// (FAIRWAY_CUDA_DRIVER=libcuda.so.1) the library that FAIRWAY_TEST_NCCL names. What needs the stand-in's help is
// skipped there, and there are as many ranks as GPUs: NCCL refuses two of them on one.
namespace fairway {

inline bool is_standin() {
  return std::getenv("FAIRWAY_TEST_NCCL") == nullptr;
}
inline std::string nccl_library() {
  return is_standin() ? FAIRWAY_STANDIN_NCCL : std::getenv("FAIRWAY_TEST_NCCL");
}
// 3, where that can be.
inline int some_ranks() {
  return is_standin() ? 3 : 2;
}
#define FAIRWAY_NEEDS_STANDIN() \
  if (!is_standin()) GTEST_SKIP() << "the stand-in NCCL does on demand what this needs"

struct NcclCase {
  int size = 2;
  std::chrono::milliseconds timeout{600'000};
  GpuOptions options = {.nccl = NcclUse::always, .nccl_library = nccl_library()};
  Progress progress = Progress::caller;
  std::vector<std::pair<std::string, std::string>> environment = {};
  int dies = -1;
};

// A function of the stand-in, for tests.
template <class F>
F* standin_nccl(const char* name) {
  static void* const library = ::dlopen(nccl_library().c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<F*>(::dlsym(library, name));
}
// Operations that this process has given to it. Of a real one nobody counts them.
inline long nccl_operations() {
  if (!is_standin()) return 0;
  return standin_nccl<long()>("fairway_standin_nccl_operations")();
}

// Runs `body` on ranks that have not called use_gpu().
inline void run_ranks(const NcclCase& one, const std::function<void(GpuRank&)>& body) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  ::setenv("FAIRWAY_STANDIN_DEVICES", "4", 0);
  for (const auto& [name, value] : one.environment) ::setenv(name.c_str(), value.c_str(), 1);
  GroupOptions options;
  options.size = one.size;
  options.transports = {"shm", "cuda"};
  options.progress = one.progress;
  options.communicator.timeout = one.timeout;
  const auto ends = run_processes(options, [&](Engine&, Communicator& communicator) {
    GpuRank rank(communicator);
    body(rank);
    return rank.well ? 0 : 1;
  });
  for (const auto& [name, value] : one.environment) ::unsetenv(name.c_str());
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].well || static_cast<int>(rank) == one.dies) << "rank " << rank << ": " << ends[rank].said;
}

// The same, with use_gpu() called.
inline void run_nccl_ranks(const NcclCase& one, const std::function<void(GpuRank&)>& body) {
  run_ranks(one, [&](GpuRank& rank) {
    if (rank.expect(rank.group.use_gpu(rank.gpu, one.options), "use_gpu")) body(rank);
  });
}

// An all_reduce of i32 whose sum is known.
class NcclSum {
 public:
  NcclSum(GpuRank& rank, std::size_t count) : rank_(rank), count_(count), place_(rank.memory(count * 4)) {}
  [[nodiscard]] Collective call() const {
    return {
        .kind = CollectiveKind::all_reduce, .input = place_, .output = place_, .count = count_, .type = DataType::i32};
  }
  // 1 at each rank.
  void fill() {
    std::vector<std::byte> ones(count_ * 4);
    for (std::size_t i = 0; i < count_; ++i) put(ones.data(), i, DataType::i32, 1);
    rank_.fill(place_, ones);
  }
  // After so many operations in place among `size` ranks.
  bool is_right(int operations, int size) {
    double want = 1;
    for (int i = 0; i < operations; ++i) want *= size;
    const auto seen = rank_.read(place_, count_ * 4);
    for (const std::size_t i : {std::size_t{0}, count_ / 2, count_ - 1})
      if (get(seen.data(), i, DataType::i32) != want)
        return rank_.fail("a sum is " + std::to_string(get(seen.data(), i, DataType::i32)) + ", not " +
                          std::to_string(want));
    return true;
  }

 private:
  GpuRank& rank_;
  const std::size_t count_;
  std::byte* const place_;
};

}  // namespace fairway
