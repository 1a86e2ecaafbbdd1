#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "process/nccl/pattern.h"
#include "support/cuda/device_memory.h"

// GPU pointers, on the stand-in driver or on the one that FAIRWAY_CUDA_DRIVER names.
namespace fairway::nccl {
namespace {

using support::DeviceMemory;
constexpr std::size_t kGpuBytes = 1u << 20;

// Each rank on a GPU of its own: Simple's buffers on GPUs, and LL's, which leave from pinned host memory.
void between_gpus(Board& board, int number, int version, bool vmm) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  ::unsetenv("FAIRWAY_TRANSPORTS");
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("FAIRWAY_GPU_MEMORY", "on", 1);
  DeviceMemory gpus;
  const int device = number % gpus.devices();
  Rank rank(board, number, 2, version);
  if (rank.facts.pointers != (abi::kPointerHost | abi::kPointerCuda)) throw Failure("no GPU pointers: " + said());
  rank.meet(1 - number, 1 - number);
  std::byte* out = vmm ? gpus.map(4 * kGpuBytes, device, true) : gpus.allocate(4 * kGpuBytes, device);
  std::byte* in = vmm ? gpus.map(4 * kGpuBytes, device, true) : gpus.allocate(4 * kGpuBytes, device);
  void* host = nullptr;
  gpus.on(device, [&] {
    gpus.check(gpus.driver()->cuMemHostAlloc(&host, kGpuBytes, sys::cuda::kHostPortable), "cuMemHostAlloc");
    return 0;
  });
  void* from = rank.register_memory(rank.sender, out, 4 * kGpuBytes, abi::kPointerCuda);
  void* from_host = rank.register_memory(rank.sender, host, kGpuBytes, abi::kPointerHost);
  void* into = rank.register_memory(rank.receiver, in, 4 * kGpuBytes, abi::kPointerCuda);
  std::vector<std::byte> bytes(kGpuBytes);
  for (std::uint64_t turn = 0; turn < 12; ++turn) {
    const std::size_t size = turn % 3 == 0   ? kGpuBytes
                             : turn % 3 == 1 ? 8
                                             : 4096 * turn + 16,
                      at = turn % 4 * kGpuBytes;
    const bool by_host = turn % 2 == 1;
    fill(bytes.data(), size, turn * 2 + static_cast<std::uint64_t>(number));
    if (by_host)
      std::memcpy(host, bytes.data(), size);
    else
      gpus.write(out + at, std::span(bytes).first(size), device);
    void* receiving = rank.receive(in + at, kGpuBytes, 1, into);
    void* sending = rank.send(by_host ? host : out + at, size, 1, by_host ? from_host : from);
    rank.finish(sending);
    if (static_cast<std::size_t>(rank.finish(receiving)) != size) throw Failure("a size");
    gpus.read(std::span(bytes).first(size), in + at, device);
    compare(bytes.data(), size, turn * 2 + static_cast<std::uint64_t>(1 - number));
  }
  for (void* memory : {from, from_host}) rank.must(rank.table->deregister(rank.sender, memory), "deregMr");
  rank.must(rank.table->deregister(rank.receiver, into), "deregMr");
  if (!says(" by cuda/")) throw Failure("no route in NCCL's log: " + said());
  rank.barrier(0);  // of a peer that has left no route can be told
  rank.leave();
}

TEST(NcclGpu, MemoryOfEveryAllocatorMoves) {
  for (const bool vmm : {false, true}) {
    Ranks ranks(2, [vmm](Board& board, int rank) { between_gpus(board, rank, vmm ? 11 : 12, vmm); });
    EXPECT_EQ(ranks.outcomes(), "") << (vmm ? "mapped" : "allocated");
  }
}

TEST(NcclGpu, IsOfferedOnlyWhereItIsWantedAndCanBeMoved) {
  Ranks ranks(3, [](Board&, int number) {
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    ::setenv("FAIRWAY_GPU_MEMORY", "on", 1);
    ::unsetenv("FAIRWAY_TRANSPORTS");
    if (number == 0) ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1);
    if (number == 1) ::setenv("FAIRWAY_STRICT_ISOLATION", "1", 1);
    if (number == 2) ::unsetenv("FAIRWAY_GPU_MEMORY");
    const auto table = open_table(12);
    Facts facts;
    if (table->init(logger) != abi::kSuccess || table->properties(0, facts) != abi::kSuccess) throw Failure(said());
    if (facts.pointers != abi::kPointerHost) throw Failure("GPU pointers without the transport");
    if (said().find("host memory only") == std::string::npos) throw Failure(said());
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl
