#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "fairway/collectives.h"

#include "collectives/gpu/group.h"
#include "collectives/gpu/plan.h"
#include "collectives/gpu/windows.h"

namespace fairway::collectives {

// Operations whose memory the other ranks read where it is: kernels meet the others, copy engines move, and kernels
// combine. Nobody writes into another rank's memory, so who gives up harms nobody. Owner: a communicator; the GPUs'
// group outlives it. One thread.
class GpuReads {
 public:
  explicit GpuReads(GpuGroup& on) : on_(on) {}
  ~GpuReads();
  GpuReads(const GpuReads&) = delete;
  GpuReads& operator=(const GpuReads&) = delete;

  // Where the call's memory lies, if it goes this way: enough bytes, in windows, at the same offsets on every rank.
  struct Plan {
    gpu::ReadRoute route;
    GpuWindows::Place first, second;  // what is read first; of all_reduce the output, which is read then
    std::uint64_t step;               // what rank r shows lies r times so far behind `first`
  };
  // `from`: GpuOptions::windows_from.
  static std::optional<Plan> plan(const Collective& call, const GpuWindows& windows, int rank, int size,
                                  std::uint64_t from);
  // As GpuGroup::launch(). Each of its kernels has the whole timeout.
  Status enqueue(const Collective& call, const Plan& plan, std::uint64_t digest, std::uint64_t number, Timeout timeout,
                 void* stream);

 private:
  struct Job;
  struct Beside {  // of a place: a stream for copies beside its own
    sys::cuda::Stream stream = nullptr;
    sys::cuda::Event forked = nullptr, joined = nullptr;
  };
  Status make(Beside& each) const;  // unless it is
  void gather(Job& job);
  void reduce(Job& job);
  void broadcast(Job& job);

  GpuGroup& on_;
  std::array<Beside, gpu::Layout::kPlaces> beside_;
};

}  // namespace fairway::collectives
