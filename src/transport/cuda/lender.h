#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "sys/cuda_memory.h"
#include "transport/cuda/devices.h"
#include "transport/cuda/handle.h"
#include "transport/host/mover.h"
#include "transport/memory.h"

namespace fairway::transport::cuda {

using Pointer = sys::CudaPointer;
using sys::look_at;

// This process's regions in the driver's memory, and the handles of the allocations that they lie in: each is made
// once, by the first region, and kept until the last is gone. Any thread.
class Lender {
 public:
  Lender(std::shared_ptr<Devices> devices, const ProcessToken& process)
      : devices_(std::move(devices)), process_(process) {}

  Result<std::optional<host::Mover::Lent>> lend(const MemoryDescription& memory);
  void take_back(RegionId region);
  const ProcessToken& process() const { return process_; }
  // Of host memory that is not pinned; nothing: it is, or is no region's.
  std::optional<std::span<std::byte>> host(RegionId region) const;
  int device_of(RegionId region) const;  // -1: not in a device's memory
  int pinned_by(RegionId region) const;  // the device in whose context that was done; -1: not pinned by the user

 private:
  struct Allocation {
    std::uint32_t regions = 0;
    std::vector<std::byte> handle;
    std::shared_ptr<sys::Fd> file;
  };
  struct Place {
    std::uint64_t allocation = 0;
    int device = -1;
  };
  Status make(const Pointer& pointer, Allocation& out);

  std::shared_ptr<Devices> devices_;
  const ProcessToken process_;
  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<std::uint64_t, Place> regions_;
  std::unordered_map<std::uint64_t, std::span<std::byte>> hosts_;
  std::unordered_map<std::uint64_t, int> pinned_;
  std::unordered_map<std::uint64_t, Allocation> allocations_;
};

}  // namespace fairway::transport::cuda
