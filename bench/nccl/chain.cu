#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <cuda_runtime.h>

#include "checks.cuh"
#include "cuda_check.cuh"
#include "fairway/collectives.h"
#include "processes.h"

// Whether any value of many operations on GPU memory is ever wrong.
//   chain RANKS VALUES SECONDS [busy] [windows | reduce | blocks]
// A process for each rank, with GPU rank modulo their number. 24 sums of u64 in place, one after the other, multiply each
// value by RANKS each time. So a value that is wrong in one of them, such as one of an earlier operation, is wrong in the
// end. Then all are compared, and others begin. busy: a process beside them keeps all GPUs at work, so that the ranks'
// kernels are taken off them in between. windows: the values lie in one, which the ranks read. reduce: each sum is a reduce
// to one rank after the other, which sends it to the others by messages. blocks: each is followed by an all_to_allv of
// blocks of other sizes, and one that brings all back. Exit code 1: a value was wrong.
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

void run(Shared& shared, int rank, int ranks, std::uint64_t count, double seconds,
         const std::string& how) {
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
  if (how == "windows") FAIRWAY_CHECK(group->register_window(values, count * sizeof(Value)).status());

  Value factor = 1;
  for (int i = 0; i < kChain; ++i) factor *= static_cast<Value>(ranks);
  fairway::Collective sum;
  sum.kind = fairway::CollectiveKind::all_reduce;
  sum.input = sum.output = values;
  sum.count = count;
  sum.type = fairway::DataType::u64;
  const auto reduce_and_send = [&](int root) {
    fairway::Collective call = sum;
    call.kind = fairway::CollectiveKind::reduce;
    call.root = root;
    if (rank != root) call.output = nullptr;
    FAIRWAY_CHECK(group->stream_run(call, stream));
    std::vector<fairway::StreamMessage> messages;
    for (int other = 0; other < ranks; ++other)
      if (other != rank && (rank == root || other == root))
        messages.push_back({values, count * sizeof(Value), other, rank != root});
    FAIRWAY_CHECK(group->stream_messages(messages, stream));
  };
  // Rank i has its block of each rank's values, and then all have theirs again. Blocks grow with their number.
  Value* apart = nullptr;
  CUDA_CHECK(cudaMalloc(&apart, (count + 1) * static_cast<std::size_t>(ranks) * sizeof(Value)));
  const auto there_and_back = [&] {
    const auto from = [&](int of) { return count * of * (of + 1) / (static_cast<std::size_t>(ranks) * (ranks + 1)); };
    std::vector<std::size_t> sizes, at, mine, packed;
    for (int i = 0; i < ranks; ++i) {
      sizes.push_back(from(i + 1) - from(i));
      at.push_back(from(i));
      mine.push_back(from(rank + 1) - from(rank));
      packed.push_back(mine.back() * i);
    }
    fairway::Collective call = sum;
    call.kind = fairway::CollectiveKind::all_to_allv;
    call.count = 0;
    call.output = apart;
    call.send = {sizes, at};
    call.receive = {mine, packed};
    FAIRWAY_CHECK(group->stream_run(call, stream));
    CUDA_CHECK(cudaMemsetAsync(values, 0xA5, count * sizeof(Value), stream));
    call.input = apart;
    call.output = values;
    std::swap(call.send, call.receive);
    FAIRWAY_CHECK(group->stream_run(call, stream));
  };
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t chains = 0;
  for (bool over = false; !over; ++chains) {
    fill<<<256, 256, 0, stream>>>(values, count, chains);
    for (int i = 0; i < kChain; ++i) {
      if (how == "reduce") {
        reduce_and_send(i % ranks);
        continue;
      }
      FAIRWAY_CHECK(group->stream_run(sum, stream));
      if (how == "blocks") there_and_back();
    }
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
  bool busy = false, good = ranks >= 2 && ranks <= 8;
  std::string how;
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    if (word == "busy")
      busy = true;
    else if (word == "windows" || word == "reduce" || word == "blocks")
      how = word;
    else
      good = false;
  }
  if (!good) {
    std::fprintf(stderr, "chain RANKS VALUES SECONDS [busy] [windows | reduce | blocks], of 2 to 8 ranks\n");
    return 2;
  }
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  auto& shared = *new (memory) Shared;
  const int failed = processes::run(ranks + (busy ? 1 : 0), [&](int rank) {
    if (rank == ranks) keep_busy(shared);
    run(shared, rank, ranks, std::strtoull(words[2], nullptr, 10), std::atof(words[3]), how);
    return 0;
  });
  return failed != 0 || shared.wrong ? 1 : 0;
}
