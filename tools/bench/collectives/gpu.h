#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpu.h"
#include "collectives.h"
#include "nccl.h"

// `fairway bench collectives --memory gpu`: each rank has the GPU of its number, and operations go on its stream.
namespace fairway::tool::bench {

inline constexpr int kMostGpuRanks = 8;  // of a communicator that uses GPUs

// 2, 4 and 8, as far as there are GPUs.
std::vector<int> usual_gpu_ranks();
// Ok, or why not each of so many ranks has a GPU here.
Status have_gpus(const std::vector<int>& ranks);

// As many rounds as graphs of such work have together, at least that many.
std::uint64_t rounds_of_graphs(const CollectiveWork& work, std::uint64_t rounds);

// Memory of a GPU that grows. What it was before stays to its end: NCCL's other ranks may have that mapped.
class GpuRoom {
 public:
  Result<std::byte*> of(Gpu& gpu, int device, std::uint64_t bytes);

 private:
  std::vector<std::shared_ptr<std::byte>> all_;
  std::uint64_t bytes_ = 0;  // of the last
};

// A rank's GPU, its stream, and who moves the bytes there. One thread; the communicator outlives it. A resource.
class GpuRank {
 public:
  // Collective.
  static Result<std::unique_ptr<GpuRank>> open(Communicator& world, const GpuPlace& place);
  ~GpuRank();
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  // Collective: rounds in a loop, launched or in graphs, from the first launch until the stream has ended.
  Result<Timed> run(const CollectiveOrder& order);

 private:
  GpuRank(Communicator& world, GpuPlace place, std::shared_ptr<Gpu> gpu)
      : world_(world), place_(std::move(place)), gpu_(std::move(gpu)) {}
  Status prepare();
  Status renew();
  // The call on this GPU, whose memory is as that of the host; and what came of it, back there.
  Result<Collective> put(CollectiveMemory& memory);
  Status bring_back(CollectiveMemory& memory, const Collective& call);
  Status enqueue(const CollectiveOrder& order, const Collective& call, std::uint64_t bytes);
  Status exchange(bool by_nccl, const Collective& call, std::uint64_t bytes);
  Status settle();
  Result<std::shared_ptr<sys::cuda::ReadyGraph>> capture(std::uint64_t calls, const std::function<Status()>& once);
  Result<double> time(const CollectiveOrder& order, const std::function<Status()>& once);

  Communicator& world_;  // of host memory: barriers, and what the others are made of
  const GpuPlace place_;
  const std::shared_ptr<Gpu> gpu_;
  GpuRoom input_, output_;
  sys::cuda::Stream stream_ = nullptr;
  std::optional<Communicator> group_;  // that uses the GPUs
  std::unique_ptr<NcclRank> nccl_;
  int captures_ = 0;  // of `group_`
};

}  // namespace fairway::tool::bench
