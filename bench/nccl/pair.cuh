#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include "fairway/device.cuh"
#include "fairway/engine.h"

#include "checks.cuh"
#include "cuda_check.cuh"

// Two processes, each with a GPU and a box in its memory that the other's kernels and streams access directly.
namespace pair {

inline constexpr std::size_t kWords = 64, kLine = 128;  // signals behind the bytes of a box, one per cache line
inline constexpr std::chrono::seconds kSoon{30};

struct Shared {  // between the processes
  std::atomic<std::uint64_t> arrived{0};
  char address[2][256] = {};
  unsigned char id[128] = {};  // the NCCL unique id
  std::atomic<std::uint64_t> words[8] = {};
};

struct Side {
  Shared& shared;
  const int rank;
  std::size_t bytes = 0;
  std::unique_ptr<fairway::Engine> engine;
  fairway::PeerId peer;
  fairway::Region own, from;
  fairway::RemoteRegion remote;
  fairway::Mapping there;
  unsigned char *box = nullptr, *source = nullptr;
  unsigned long long* wrong = nullptr;  // in pinned memory
  std::uint32_t* outcome = nullptr;  // in pinned memory
  cudaStream_t stream = nullptr;

  std::uint64_t* word(std::size_t i) const { return reinterpret_cast<std::uint64_t*>(box + bytes + i * kLine); }
  std::uint64_t* word_there(std::size_t i) const {
    return reinterpret_cast<std::uint64_t*>(there.address + bytes + i * kLine);
  }
  std::uint64_t offset_of_word(std::size_t i) const { return bytes + i * kLine; }

  void meet() const {
    const std::uint64_t mine = shared.arrived.fetch_add(1);
    while (shared.arrived.load() < (mine / 2 + 1) * 2) std::this_thread::yield();
  }
  void clear_words() const {
    CUDA_CHECK(cudaMemsetAsync(box + bytes, 0, kWords * kLine, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    meet();
  }

  // Opens this rank's box and source and maps the peer's box. `progress` as in EngineOptions.
  void open(std::size_t size, fairway::Progress progress) {
    int devices = 0;
    CUDA_CHECK(cudaGetDeviceCount(&devices));
    const int gpu = rank % devices;
    CUDA_CHECK(cudaSetDevice(gpu));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    bytes = size;
    CUDA_CHECK(cudaMalloc(&box, bytes + kWords * kLine));
    CUDA_CHECK(cudaMalloc(&source, bytes));
    CUDA_CHECK(cudaMemset(box, 0, bytes + kWords * kLine));
    CUDA_CHECK(cudaMemset(source, 0, bytes));
    CUDA_CHECK(cudaHostAlloc(&wrong, sizeof *wrong, cudaHostAllocPortable | cudaHostAllocMapped));
    CUDA_CHECK(cudaHostAlloc(&outcome, sizeof *outcome, cudaHostAllocPortable | cudaHostAllocMapped));
    *wrong = 0;
    *outcome = 0;
    CUDA_CHECK(cudaDeviceSynchronize());
    fairway::EngineOptions options;
    options.name = "rank" + std::to_string(rank);
    options.progress = progress;
    auto made = fairway::Engine::open(options);
    FAIRWAY_CHECK(made.status());
    engine = std::make_unique<fairway::Engine>(std::move(*made));
    const auto region = engine->register_memory(box, bytes + kWords * kLine, fairway::Access::all);
    FAIRWAY_CHECK(region.status());
    own = *region;
    const auto bare = engine->register_memory(source, bytes, fairway::Access::none);
    FAIRWAY_CHECK(bare.status());
    from = *bare;
    FAIRWAY_CHECK(engine->publish("box", own));
    std::strncpy(shared.address[rank], engine->address().c_str(), sizeof shared.address[rank] - 1);
    meet();
    // Rank 0 connects; the other waits for its peer event.
    if (rank == 0) {
      const auto found = engine->connect(shared.address[1], kSoon);
      FAIRWAY_CHECK(found.status());
      peer = *found;
    } else {
      for (fairway::PeerEvent event; !peer;) {
        (void)engine->wait_peer_event(std::chrono::milliseconds(10));
        while (engine->poll_peer_events({&event, 1}) == 1)
          if (event.kind == fairway::PeerEvent::Kind::up) peer = event.peer;
      }
    }
    const auto found = engine->lookup(peer, "box", kSoon);
    FAIRWAY_CHECK(found.status());
    remote = *found;
    const auto mapped = engine->map(remote, gpu, kSoon);
    FAIRWAY_CHECK(mapped.status());
    there = *mapped;
    both([] {});
  }
  // Waits for the other process, and drives the engine meanwhile if the caller makes the progress.
  template <class Then>
  void both(Then then) {
    then();
    const std::uint64_t mine = shared.arrived.fetch_add(1);
    while (shared.arrived.load() < (mine / 2 + 1) * 2) {
      fairway::Completion completion;
      (void)engine->poll({&completion, 1});
      std::this_thread::yield();
    }
  }
  void close() {
    CUDA_CHECK(cudaDeviceSynchronize());
    if (there.id) FAIRWAY_CHECK(engine->unmap(there.id));
    both([] {});
    engine.reset();
  }
};

// Runs `body` in both processes and returns the worse of the two results. Call it before any CUDA call of this process.
template <class Body>
int run(Body body) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared;
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    Side side{shared, 1};
    const int code = body(side);
    std::fflush(stdout);
    std::_Exit(code);
  }
  Side side{shared, 0};
  const int code = body(side);
  int status = 0;
  ::waitpid(child, &status, 0);
  const int theirs = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return code != 0 ? code : theirs;
}

// ---- byte patterns, by seed ----

__host__ __device__ inline unsigned char pattern(std::uint64_t seed, std::uint64_t i) {
  const std::uint64_t h = (i / 8 + 1) * 0x9E3779B97F4A7C15ull ^ (seed + 1) * 0xC2B2AE3D27D4EB4Full;
  return static_cast<unsigned char>((h ^ h >> 29 ^ h >> 47) >> (i % 8 * 4));
}

// Fills with the pattern of seed `first` + *turn (turn may be null). The caller increments the turn.
__global__ void fill(unsigned char* to, std::uint64_t length, std::uint64_t first, const std::uint64_t* turn) {
  const std::uint64_t seed = first + (turn == nullptr ? 0 : *turn);
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < length;
       i += std::uint64_t{gridDim.x} * blockDim.x)
    to[i] = pattern(seed, i);
}
__global__ void compare(const unsigned char* with, std::uint64_t length, std::uint64_t first, const std::uint64_t* turn,
                        unsigned long long* wrong) {
  const std::uint64_t seed = first + (turn == nullptr ? 0 : *turn);
  unsigned long long found = 0;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < length;
       i += std::uint64_t{gridDim.x} * blockDim.x)
    found += with[i] != pattern(seed, i);
  if (found != 0) atomicAdd_system(wrong, found);
}
__global__ void count_on(std::uint64_t* turn) {
  ++*turn;
}

inline unsigned blocks_for(std::uint64_t length) {
  return static_cast<unsigned>(length / 4096 + 1 > 512 ? 512 : length / 4096 + 1);
}

// Captures a stream's work as a graph.
template <class Work>
cudaGraphExec_t capture(cudaStream_t stream, Work work) {
  cudaGraph_t graph;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  work();
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t made;
  CUDA_CHECK(cudaGraphInstantiate(&made, graph, 0));
  CUDA_CHECK(cudaGraphDestroy(graph));
  return made;
}

}  // namespace pair
