#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/gpu/group.h"
#include "sys/cuda_memory.h"

// GpuGroup: its end, which waits for no kernel, and which graphs may outlive.
namespace fairway::collectives {
namespace {

using sys::CurrentContext;

constexpr Timeout kLeaving{1'000'000};

// For the process's life, as the rest of what graphs use.
void keep(std::shared_ptr<gpu::Told> told) {
  static std::mutex mutex;  // guards the list
  static auto* const kept = new std::vector<std::shared_ptr<gpu::Told>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(told));
}

}  // namespace

// A graph that has this communicator's operations may be launched when it is gone. So its kernels find on this GPU that
// there is nothing to do, before they look at any other, and what they use stays until the process ends.
void GpuGroup::end_captured() {
  const sys::CudaDriver& cu = *driver_;
  const CurrentContext current(cu, context_);
  sys::cuda::Stream own = nullptr;  // waits for no kernel
  if (cu->cuStreamCreateWithPriority(&own, sys::cuda::kStreamNonBlocking, 0) != sys::cuda::kSuccess) return;
  std::atomic_ref(host_->stop).store(1);
  const auto at = scratch_ + offsetof(gpu::ScratchHead, failed);
  (void)cu->cuMemcpyAsync(at, reinterpret_cast<sys::cuda::Address>(&host_->stop), sizeof host_->stop, own);
  (void)cu->cuStreamSynchronize(own);
  cu->cuStreamDestroy_v2(own);
}

GpuGroup::~GpuGroup() {
  bool is_free = true;
  const bool outlived = graphs_.any();
  if (outlived && scratch_ != 0) end_captured();
  if (engine_.is_open()) {
    for (const Mapping& mapping : mappings_)
      if (mapping.id) (void)engine_.unmap(mapping.id);
    // Ranks that have not left yet may still write here.
    if (region_.id) is_free = engine_.deregister(region_, kLeaving).is_ok();
  }
  if (context_ == nullptr) return;
  if (outlived) {
    keep(std::move(told_of_file_));
    return;
  }
  closing_->post([driver = driver_, context = context_, scratch = is_free ? scratch_ : 0,
                  told = std::move(told_of_file_), host = host_, ends = places_.events(), gpu = gpu_] {
    const sys::CudaDriver& cu = *driver;
    {
      const CurrentContext current(cu, context);
      for (const sys::cuda::Event end : ends)
        if (end != nullptr) cu->cuEventDestroy_v2(end);
      if (scratch != 0) cu->cuMemFree_v2(scratch);
      if (told) cu->cuMemHostUnregister(told.get());
      if (host != nullptr) cu->cuMemFreeHost(host);
    }
    cu->cuDevicePrimaryCtxRelease_v2(gpu);
  });
}

void GpuGroup::destroy(std::vector<sys::cuda::Event> events) const {
  closing_->post([driver = driver_, context = context_, events = std::move(events)] {
    const CurrentContext current(*driver, context);
    for (const sys::cuda::Event event : events)
      if (event != nullptr) (*driver)->cuEventDestroy_v2(event);
  });
}

}  // namespace fairway::collectives
