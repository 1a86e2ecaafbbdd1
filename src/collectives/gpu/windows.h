#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/gpu/device/call.h"
#include "collectives/gpu/group.h"
#include "collectives/gpu/plan.h"

namespace fairway::collectives {

struct Member;

// GPU memory that the ranks have shown to each other, which they read where it is. Every rank adds and ends the same
// windows in the same order. Owner: a communicator. One thread.
class GpuWindows {
 public:
  GpuWindows(Engine& engine, int device, int rank, int size);
  ~GpuWindows();
  GpuWindows(const GpuWindows&) = delete;
  GpuWindows& operator=(const GpuWindows&) = delete;

  // Publishes this rank's part of the next window as `name`; then maps the others', which they have published. The
  // error names the rank. What has begun is ended by drop(), or stays with keep().
  Status begin(void* memory, std::uint64_t size_bytes, const std::string& name);
  Status meet(const std::vector<Member>& members, const std::string& name, Time deadline);
  WindowId keep();
  void drop();

  // Stops using what the others have shown, so that they may take it back; then takes back this rank's part.
  Status forget(WindowId window);
  Status end(WindowId window, Timeout timeout);

  // Where memory lies that every rank has shown: the other ranks' at the same offset, as this GPU reaches it.
  struct Place {
    WindowId window;
    std::uint64_t offset = 0;
    std::array<const unsigned char*, gpu::kMostRanks> others = {};
  };
  [[nodiscard]] std::optional<Place> find(const void* memory, std::uint64_t size_bytes) const;

 private:
  struct Shown;
  [[nodiscard]] Shown* at(WindowId window) const;

  Engine& engine_;
  const int device_, rank_, size_;
  std::vector<std::unique_ptr<Shown>> shown_;   // by number, from 1 on; null: ended
  std::vector<std::unique_ptr<Shown>> ending_;  // ended, but not fenced in time
  std::unique_ptr<Shown> begun_;
};

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
