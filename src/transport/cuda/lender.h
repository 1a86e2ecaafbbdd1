#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "sys/cuda_memory.h"
#include "transport/cuda/devices.h"
#include "transport/cuda/handle.h"
#include "transport/host/mover.h"
#include "transport/transport.h"

namespace fairway::transport::cuda {

using Pointer = sys::CudaPointer;
using sys::look_at;
// The allocation that the bytes lie in, or all mappings of virtual memory management that they take parts of.
Result<std::vector<Pointer>> mappings_at(const CudaDriver& driver, const Pointer& first, const std::byte* address,
                                         std::uint64_t size);

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
  int device_of(RegionId region) const;                  // -1: not in a device's memory
  std::vector<std::byte> handle(RegionId region) const;  // of what it lies in; empty: not in a device's memory
  int pinned_by(RegionId region) const;  // the device in whose context that was done; -1: not pinned by the user

 private:
  // What is lent as one: an allocation, or mappings one behind the other of which a region takes parts.
  struct Allocation {
    std::uint32_t regions = 0;
    std::uint64_t identity = 0;
    std::vector<std::byte> handle;
    std::vector<std::shared_ptr<sys::Fd>> files;
  };
  using Numbers = std::vector<std::uint64_t>;  // of the driver's, of each mapping
  struct Place {
    Numbers allocation;
    int device = -1;
  };
  Status make(const std::vector<Pointer>& mappings, Allocation& out);
  Status export_files(const std::vector<Pointer>& mappings, Allocation& out);

  std::shared_ptr<Devices> devices_;
  const ProcessToken process_;
  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<std::uint64_t, Place> regions_;
  std::unordered_map<std::uint64_t, std::span<std::byte>> hosts_;
  std::unordered_map<std::uint64_t, int> pinned_;
  std::map<Numbers, Allocation> allocations_;
  std::uint64_t next_identity_ = 1;
};

}  // namespace fairway::transport::cuda
