#include "transport/cuda/lender.h"

#include <algorithm>

#include "transport/handles.h"

namespace fairway::transport::cuda {

using namespace sys::cuda;

Result<std::optional<host::Mover::Lent>> Lender::lend(const MemoryDescription& memory) {
  if (memory.kind == MemoryKind::host) {
    const std::lock_guard lock(mutex_);
    hosts_[handle_of(memory.id)] = {memory.address, memory.size_bytes};
  }
  if (memory.kind == MemoryKind::host || memory.kind == MemoryKind::managed) return std::optional<host::Mover::Lent>();
  const Pointer pointer = look_at(devices_->driver(), memory.address);
  if (memory.kind == MemoryKind::pinned) {
    const std::lock_guard lock(mutex_);
    pinned_[handle_of(memory.id)] = pointer.device;
    return std::optional<host::Mover::Lent>();
  }
  if (pointer.kind != MemoryKind::device)
    return Status(ErrorCode::invalid_argument, "cuda: that address is not in a GPU's memory");
  const auto begin = reinterpret_cast<std::uint64_t>(memory.address);
  if (begin < pointer.base || memory.size_bytes > pointer.base + pointer.size - begin)
    return Status(ErrorCode::out_of_range,
                  "cuda: the region leaves its allocation, or spans several mapped one behind the other (an expandable "
                  "segment): register each part");
  const std::lock_guard lock(mutex_);
  Allocation& allocation = allocations_[pointer.allocation];
  if (allocation.regions == 0)
    if (Status status = make(pointer, allocation); !status) {
      allocations_.erase(pointer.allocation);
      return status;
    }
  ++allocation.regions;
  regions_[handle_of(memory.id)] = {pointer.allocation, pointer.device};
  return std::optional<host::Mover::Lent>(
      host::Mover::Lent{pointer.allocation, begin - pointer.base, allocation.handle, allocation.file});
}

// An allocation that cannot be lent is still reached within the process; peers elsewhere are told why not.
Status Lender::make(const Pointer& pointer, Allocation& out) {
  const CudaDriver& cu = devices_->driver();
  const auto context = devices_->use(pointer.device);
  if (!context) return context.status();
  const Current current(cu, *context);
  Handle handle;
  handle.process = process_;
  handle.device = devices_->uuid(pointer.device);
  handle.base = pointer.base;
  handle.size = pointer.size;
  if (pointer.file) {
    sys::cuda::Allocation allocation = 0;
    int fd = -1;
    Status status = cu.check(cu->cuMemRetainAllocationHandle(&allocation, reinterpret_cast<void*>(pointer.base)),
                             "cuMemRetainAllocationHandle");
    if (status) {
      status =
          cu.check(cu->cuMemExportToShareableHandle(&fd, allocation, kHandleFile, 0), "cuMemExportToShareableHandle");
      cu->cuMemRelease(allocation);
    }
    if (status) {
      handle.way = Way::file;
      out.file = std::make_shared<sys::Fd>(fd);
    } else {
      handle.why = status.message();
    }
  } else if (pointer.ipc) {
    const Status status = cu.check(cu->cuIpcGetMemHandle(&handle.ipc, pointer.base), "cuIpcGetMemHandle");
    handle.way = status ? Way::ipc : Way::none;
    handle.why = status ? "" : status.message();
  } else {
    handle.why = "it comes from a memory pool or a mapping that was made without a handle for other processes";
  }
  out.handle = encode(handle);
  return {};
}

void Lender::take_back(RegionId region) {
  const std::lock_guard lock(mutex_);
  hosts_.erase(handle_of(region));
  pinned_.erase(handle_of(region));
  const auto found = regions_.find(handle_of(region));
  if (found == regions_.end()) return;
  const auto allocation = allocations_.find(found->second.allocation);
  if (--allocation->second.regions == 0) allocations_.erase(allocation);
  regions_.erase(found);
}

std::optional<std::span<std::byte>> Lender::host(RegionId region) const {
  const std::lock_guard lock(mutex_);
  const auto found = hosts_.find(handle_of(region));
  return found == hosts_.end() ? std::nullopt : std::optional(found->second);
}

int Lender::device_of(RegionId region) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(handle_of(region));
  return found == regions_.end() ? -1 : found->second.device;
}

int Lender::pinned_by(RegionId region) const {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(handle_of(region));
  return found == pinned_.end() ? -1 : found->second;
}

}  // namespace fairway::transport::cuda
