#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sys/cuda.h"

// GPU memory for tests and for the checks of benchmarks, through the same driver as the transport.
namespace fairway::support {

class DeviceMemory {
 public:
  DeviceMemory() : driver_(sys::CudaDriver::open().value()) {
    for (int device = 0; device < driver_->devices(); ++device) {
      sys::cuda::Context context = nullptr;
      check((*driver_)->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
      contexts_.push_back(context);
    }
    streams_.resize(contexts_.size());
  }
  ~DeviceMemory() {
    for (std::size_t device = 0; device < streams_.size(); ++device)
      if (streams_[device] != nullptr) (*driver_)->cuStreamDestroy_v2(streams_[device]);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  int devices() const { return driver_->devices(); }
  const sys::CudaDriver& driver() const { return *driver_; }
  sys::cuda::Context context(int device) const {
    return contexts_[static_cast<std::size_t>(device) % contexts_.size()];
  }

  // Calls with that device's context current on this thread.
  template <class Call>
  auto on(int device, Call call) {
    (*driver_)->cuCtxPushCurrent_v2(context(device));
    const auto result = call();
    sys::cuda::Context popped = nullptr;
    (*driver_)->cuCtxPopCurrent_v2(&popped);
    return result;
  }
  std::byte* allocate(std::size_t size, int device) {
    return on(device, [&] {
      sys::cuda::Address address = 0;
      check((*driver_)->cuMemAlloc_v2(&address, size), "cuMemAlloc");
      return reinterpret_cast<std::byte*>(address);
    });
  }
  // Memory made with virtual memory management, exportable as a descriptor or not; `parts` adjacent mappings. Never
  // freed.
  std::byte* map(std::size_t size, int device, bool lendable, std::size_t parts = 1) {
    sys::cuda::AllocationProperties wanted{};
    wanted.type = sys::cuda::kAllocationPinned;
    wanted.handle_types = lendable ? sys::cuda::kHandleFile : 0;
    wanted.location = {sys::cuda::kLocationDevice, device};
    const std::size_t part = size / parts;
    sys::cuda::Address address = 0;
    const sys::cuda::AccessDescription access{wanted.location, sys::cuda::kReadWrite};
    return on(device, [&] {
      const sys::CudaDriver& cu = *driver_;
      check(cu->cuMemAddressReserve(&address, size, 0, 0, 0), "cuMemAddressReserve");
      for (std::size_t i = 0; i < parts; ++i) {
        sys::cuda::Allocation allocation = 0;
        check(cu->cuMemCreate(&allocation, part, &wanted, 0), "cuMemCreate");
        check(cu->cuMemMap(address + i * part, part, 0, allocation, 0), "cuMemMap");
        check(cu->cuMemRelease(allocation), "cuMemRelease");
      }
      check(cu->cuMemSetAccess(address, size, &access, 1), "cuMemSetAccess");
      return reinterpret_cast<std::byte*>(address);
    });
  }
  void free(std::byte* place) {
    on(0, [&] { return (*driver_)->cuMemFree_v2(reinterpret_cast<sys::cuda::Address>(place)); });
  }
  // Copies on that device, which must be able to reach the memory.
  void write(std::byte* to, std::span<const std::byte> from, int device = 0) {
    copy(to, from.data(), from.size(), device);
  }
  void read(std::span<std::byte> to, const std::byte* from, int device = 0) {
    copy(to.data(), from, to.size(), device);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t size, int device) {
    on(device, [&] {
      const sys::CudaDriver& cu = *driver_;
      sys::cuda::Stream& stream = streams_[static_cast<std::size_t>(device)];  // waits for no other work
      if (stream == nullptr)
        check(cu->cuStreamCreateWithPriority(&stream, sys::cuda::kStreamNonBlocking, 0), "cuStreamCreate");
      check(cu->cuMemcpyAsync(reinterpret_cast<sys::cuda::Address>(to), reinterpret_cast<sys::cuda::Address>(from),
                              size, stream),
            "cuMemcpyAsync");
      check(cu->cuStreamSynchronize(stream), "cuStreamSynchronize");
      return 0;
    });
  }
  void check(int result, const char* what) const {
    if (const Status status = driver_->check(result, what); !status) throw std::runtime_error(status.message());
  }

 private:
  std::shared_ptr<const sys::CudaDriver> driver_;
  std::vector<sys::cuda::Context> contexts_;
  std::vector<sys::cuda::Stream> streams_;  // by device
};

}  // namespace fairway::support
