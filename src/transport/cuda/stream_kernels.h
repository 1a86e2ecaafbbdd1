#pragma once

#include <cstdint>

#include "transport/cuda/devices.h"
#include "transport/gpu_access.h"

namespace fairway::transport::cuda {

// Kernel images for the driver; null if this was built without nvcc.
const char* copy_kernel();     // copies a list of pieces
const char* signal_kernels();  // for stream_put and stream_wait_signal

// The kernels of signals.cu on one device. load() runs each once, so that no later launch has to load code, for which
// the driver may wait for running kernels. Immutable after load(); launches on any thread.
class StreamKernels {
 public:
  StreamKernels() = default;
  StreamKernels(const StreamKernels&) = delete;
  StreamKernels& operator=(const StreamKernels&) = delete;

  // All calls need the device's context to be current, which is `context`. `beside`: a stream to run them on; `zeros`:
  // 16 zero bytes that the device can access.
  void load(const CudaDriver& driver, sys::cuda::Context context, sys::cuda::Stream beside, std::byte* zeros);
  Status put(const GpuAccess::Put& put, sys::cuda::Stream stream) const;
  Status wait(const StreamWait& wait, const std::uint32_t* ended, sys::cuda::Stream stream) const;

 private:
  Status launch(sys::cuda::Function kernel, unsigned blocks, unsigned threads, sys::cuda::Stream stream,
                void** arguments) const;
  Status launch_put(std::byte* to, const void* from, std::uint64_t length, const GpuAccess::Put& signal,
                    sys::cuda::Stream stream) const;

  const CudaDriver* driver_ = nullptr;
  Status missing_{ErrorCode::unsupported, "the kernels for streams are not loaded on this GPU yet: try again"};
  sys::cuda::Function put_ = nullptr, put_part_ = nullptr, wait_ = nullptr;
};

}  // namespace fairway::transport::cuda
