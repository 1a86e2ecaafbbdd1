#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "process/collectives/expected.h"
#include "process/collectives/group.h"
#include "support/cuda/device_memory.h"

// Ranks with a GPU each, a process each, on the stand-in driver or the one that FAIRWAY_CUDA_DRIVER names.
namespace fairway {

using support::DeviceMemory;
using GpuStream = sys::cuda::Stream;

// One rank's GPU memory and streams. `well` becomes false with the first complaint.
class GpuRank {
 public:
  explicit GpuRank(Communicator& communicator) : group(communicator), gpu(communicator.rank() % gpus.devices()) {}
  ~GpuRank() {
    for (GpuStream stream : streams_) gpus.driver()->cuStreamDestroy_v2(stream);
  }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  // Ends the communicator, too: the other ranks would wait for this one.
  bool fail(const std::string& what) {
    std::fprintf(stderr, "rank %d: %s\n", group.rank(), what.c_str());
    group.abort();
    return well = false;
  }
  bool expect(const Status& status, const char* what) {
    return status ? true : fail(std::string(what) + ": " + status.to_string());
  }
  std::byte* memory(std::size_t bytes) { return gpus.allocate(bytes + 64, gpu); }
  void fill(std::byte* to, const std::vector<std::byte>& from) { gpus.write(to, from, gpu); }
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    if (bytes != 0) gpus.read(out, from, gpu);
    return out;
  }
  GpuStream stream() {
    GpuStream made = nullptr;
    gpus.on(gpu, [&] {
      gpus.check(gpus.driver()->cuStreamCreateWithPriority(&made, sys::cuda::kStreamNonBlocking, 0), "stream");
      return 0;
    });
    streams_.push_back(made);
    return made;
  }
  // False: the context is broken.
  bool synchronize(GpuStream stream) {
    return gpus.on(gpu, [&] { return gpus.driver()->cuStreamSynchronize(stream); }) == 0;
  }
  bool is_idle(GpuStream stream) {
    return gpus.on(gpu, [&] { return gpus.driver()->cuStreamQuery(stream); }) == 0;
  }

  Communicator& group;
  DeviceMemory gpus;
  const int gpu;
  bool well = true;

 private:
  std::vector<GpuStream> streams_;
};

class Graphs {
 public:
  explicit Graphs(GpuRank& rank) : rank_(rank) {}
  // What `enqueue` puts into the stream; null: it failed.
  sys::cuda::ReadyGraph capture(GpuStream stream, const std::function<bool()>& enqueue) {
    return rank_.gpus.on(rank_.gpu, [&]() -> sys::cuda::ReadyGraph {
      const auto& cu = rank_.gpus.driver();
      sys::cuda::Graph graph = nullptr;
      sys::cuda::ReadyGraph made = nullptr;
      if (cu->cuStreamBeginCapture_v2(stream, sys::cuda::kCaptureRelaxed) != 0) return nullptr;
      const bool good = enqueue();
      if (cu->cuStreamEndCapture(stream, &graph) != 0 || !good) return nullptr;
      if (cu->cuGraphInstantiateWithFlags(&made, graph, 0) != 0) return nullptr;
      cu->cuGraphDestroy(graph);
      return made;
    });
  }
  bool launch(sys::cuda::ReadyGraph graph, GpuStream stream) {
    return rank_.gpus.on(rank_.gpu, [&] { return rank_.gpus.driver()->cuGraphLaunch(graph, stream); }) == 0;
  }

  void destroy(sys::cuda::ReadyGraph graph) {
    rank_.gpus.on(rank_.gpu, [&] { return rank_.gpus.driver()->cuGraphExecDestroy(graph); });
  }

 private:
  GpuRank& rank_;
};

// Runs `body` on so many ranks, all of whose GPUs have met. `timeout`: of operations.
inline void run_gpu_ranks(int size, std::chrono::milliseconds timeout, const std::function<void(GpuRank&)>& body,
                          int dies = -1, const GpuOptions& gpu_options = {.messages = true}) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  ::setenv("FAIRWAY_STANDIN_DEVICES", "8", 0);
  GroupOptions options;
  options.size = size;
  options.transports = {"shm", "cuda"};
  options.communicator.timeout = timeout;
  const auto ends = run_processes(options, [&](Engine&, Communicator& communicator) {
    GpuRank rank(communicator);
    if (rank.expect(communicator.use_gpu(rank.gpu, gpu_options), "use_gpu")) body(rank);
    return rank.well ? 0 : 1;
  });
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].well || static_cast<int>(rank) == dies) << "rank " << rank << ": " << ends[rank].said;
}

}  // namespace fairway
