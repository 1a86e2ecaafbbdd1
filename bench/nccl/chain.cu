#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <cuda_runtime.h>

#include "checks.cuh"
#include "cuda_check.cuh"
#include "fairway/collectives.h"
#include "processes.h"

// Whether any value of many operations on GPU memory is ever wrong.
//   chain RANKS VALUES SECONDS [busy] [windows]
// A process for each rank, with GPU rank modulo their number. 24 sums of u64 in place, one after the other, multiply each
// value by RANKS each time. So a value that is wrong in one of them, such as one of an earlier operation, is wrong in the
// end. Then all are compared, and others begin. busy: a process beside them keeps all GPUs at work, so that the ranks'
// kernels are taken off them in between. windows: the values lie in one, which the ranks read. Exit code 1: a value was
// wrong.
namespace {

using Value = unsigned long long;
constexpr int kChain = 24;

__device__ Value value_of(std::uint64_t index, std::uint64_t salt) {
  std::uint64_t x = (index + salt * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
  x ^= x >> 29;
  return x * 0x94D049BB133111EBull | 1;
}
__global__ void fill(Value* values, std::uint64_t count, std::uint64_t salt) {
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    values[i] = value_of(i, salt);
}
__global__ void compare(const Value* values, std::uint64_t count, std::uint64_t salt, Value factor, Value* wrong) {
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const Value want = value_of(i, salt) * factor;
    if (values[i] != want && atomicAdd(wrong, 1ull) < 4)
      printf("value %llu is %llx instead of %llx\n", static_cast<Value>(i), values[i], want);
  }
}
__global__ void work(float* at) {
  float x = threadIdx.x;
  for (int i = 0; i < 200000; ++i) x = x * 1.0001f + 0.5f;
  at[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

struct Shared {  // between the processes
  processes::Place place;
  std::atomic<bool> stop{false}, wrong{false};
  char address[8][256] = {};
};

[[noreturn]] void keep_busy(const Shared& shared) {
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  std::vector<float*> memory(devices);
  while (!shared.stop)
    for (int device = 0; device < devices; ++device) {
      CUDA_CHECK(cudaSetDevice(device));
      if (memory[device] == nullptr) CUDA_CHECK(cudaMalloc(&memory[device], 132 * 8 * 256 * sizeof(float)));
      for (int k = 0; k < 4; ++k) work<<<132 * 8, 256>>>(memory[device]);
      if (device == devices - 1) CUDA_CHECK(cudaDeviceSynchronize());
    }
  std::_Exit(0);
}

void run(Shared& shared, int rank, int ranks, std::uint64_t count, double seconds, bool windows) {
  const auto meet = [&] { shared.place.meet(ranks); };
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  CUDA_CHECK(cudaSetDevice(rank % devices));
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Value *values = nullptr, *wrong = nullptr;
  CUDA_CHECK(cudaMalloc(&values, count * sizeof(Value)));
  CUDA_CHECK(cudaHostAlloc(&wrong, sizeof(Value), cudaHostAllocPortable));
  *wrong = 0;

  fairway::EngineOptions options;
  options.name = "rank" + std::to_string(rank);
  auto engine = fairway::Engine::open(options);
  FAIRWAY_CHECK(engine.status());
  std::strncpy(shared.address[rank], engine->address().c_str(), sizeof shared.address[rank] - 1);
  meet();
  std::vector<std::string> addresses;
  for (int i = 0; i < ranks; ++i) addresses.emplace_back(shared.address[i]);
  auto group = fairway::Communicator::create(*engine, rank, addresses);
  FAIRWAY_CHECK(group.status());
  fairway::GpuOptions gpu_options;
  gpu_options.windows_from = 1;
  FAIRWAY_CHECK(group->use_gpu(rank % devices, gpu_options));
  if (windows) FAIRWAY_CHECK(group->register_window(values, count * sizeof(Value)).status());

  Value factor = 1;
  for (int i = 0; i < kChain; ++i) factor *= static_cast<Value>(ranks);
  fairway::Collective sum;
  sum.kind = fairway::CollectiveKind::all_reduce;
  sum.input = sum.output = values;
  sum.count = count;
  sum.type = fairway::DataType::u64;
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t chains = 0;
  for (bool over = false; !over; ++chains) {
    fill<<<256, 256, 0, stream>>>(values, count, chains);
    for (int i = 0; i < kChain; ++i) FAIRWAY_CHECK(group->stream_run(sum, stream));
    compare<<<256, 256, 0, stream>>>(values, count, chains, factor, wrong);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    FAIRWAY_CHECK(group->stream_status());
    if (rank == 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > seconds)
      shared.stop = true;
    meet();
    over = shared.stop;
    meet();
  }
  std::printf("rank %d of %d: %llu sums of %llu values, %llu wrong in the end\n", rank, ranks,
              static_cast<Value>(chains * kChain), static_cast<Value>(count), *wrong);
  std::fflush(stdout);
  if (*wrong != 0) shared.wrong = true;
  meet();
}

}  // namespace

int main(int count, char** words) {
  const int ranks = count > 3 ? std::atoi(words[1]) : 0;
  bool busy = false, windows = false, good = ranks >= 2 && ranks <= 8;
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    if (word == "busy")
      busy = true;
    else if (word == "windows")
      windows = true;
    else
      good = false;
  }
  if (!good) {
    std::fprintf(stderr, "chain RANKS VALUES SECONDS [busy] [windows], of 2 to 8 ranks\n");
    return 2;
  }
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  auto& shared = *new (memory) Shared;
  const int failed = processes::run(ranks + (busy ? 1 : 0), [&](int rank) {
    if (rank == ranks) keep_busy(shared);
    run(shared, rank, ranks, std::strtoull(words[2], nullptr, 10), std::atof(words[3]), windows);
    return 0;
  });
  return failed != 0 || shared.wrong ? 1 : 0;
}
