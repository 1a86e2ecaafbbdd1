#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/gpu/group.h"
#include "collectives/nccl/library.h"

namespace fairway::collectives {

// A communicator of NCCL beside a communicator's GPUs. No call waits for another rank longer than its deadline: NCCL's
// communicator is one whose calls don't block. One thread; abort() and error() are for any.
class NcclGroup {
 public:
  // Collective: all ranks with rank 0's id. Runs each kind once, so that no later operation makes connections.
  static Result<std::unique_ptr<NcclGroup>> open(std::shared_ptr<const nccl::Library> library, const GpuGroup& on,
                                                 int rank, int size, const nccl::UniqueId& id, Time deadline);
  // Call it when its operations have ended. Waits a second for the others, and for the graphs that have operations:
  // NCCL does. If such a graph lives longer, NCCL's communicator stays until the process ends.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // What nccl::can(). `captured`: the stream captures.
  Status enqueue(const Collective& call, void* stream, bool captured, Time deadline);
  // Operations end soon, whatever other ranks do. Later ones are refused.
  void abort();
  // What NCCL has noticed by itself.
  [[nodiscard]] Status error();

 private:
  NcclGroup(std::shared_ptr<const nccl::Library> library, std::shared_ptr<const sys::CudaDriver> driver,
            sys::cuda::Context context, int rank, int size)
      : library_(std::move(library)), driver_(std::move(driver)), context_(context), rank_(rank), size_(size) {}
  Status settle(int result, const char* what, Time deadline);
  Status warm(Time deadline);
  Status run_each(std::byte* input, std::byte* output, std::size_t bytes, void* stream, Time deadline);

  const std::shared_ptr<const nccl::Library> library_;
  const std::shared_ptr<const sys::CudaDriver> driver_;
  const sys::cuda::Context context_;
  const int rank_, size_;
  bool captured_ = false;
  std::mutex mutex_;           // guards comm_, and is held in each call of NCCL with it
  nccl::Comm comm_ = nullptr;  // null: it was aborted
};

}  // namespace fairway::collectives
