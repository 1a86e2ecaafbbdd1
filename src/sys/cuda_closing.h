#pragma once

#include <functional>
#include <memory>

#include "sys/cuda.h"

namespace fairway::sys {

// A thread for calls of the driver that free something. Many of them wait for the kernels that run on that GPU, the
// program's too: cuIpcCloseMemHandle, cuMemFree, cuMemFreeHost, cuMemHostUnregister. Jobs run in order
// and own all that they use, so they need nobody who posted them. Any thread.
class CudaClosing {
 public:
  explicit CudaClosing(std::shared_ptr<const CudaDriver> driver);
  // Waits a tenth of a second for the jobs that are left. What a kernel still holds up then ends behind that kernel, on
  // a thread for which nobody waits.
  ~CudaClosing();
  CudaClosing(const CudaClosing&) = delete;
  CudaClosing& operator=(const CudaClosing&) = delete;

  void post(std::function<void()> job);  // the caller runs it where no thread can be started
  void wait();                           // for all jobs posted so far, however long a kernel holds them up

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fairway::sys
