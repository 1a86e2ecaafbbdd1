#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "sys/cuda.h"
#include "sys/fd.h"

// Memory of CUDA's driver: what it knows of an address, host memory that is pinned, memory that NICs reach, and the
// thread for the calls that give memory back.
namespace fairway::sys {

// What the driver reports about a pointer. Takes some microseconds; needs no context.
struct CudaPointer {
  std::optional<MemoryKind> kind;  // empty: not memory of the driver
  int device = -1;
  std::uint64_t allocation = 0;  // the allocation's id, unique within the process
  std::uint64_t base = 0, size = 0;
  bool ipc = false, file = false;  // how it can be shared with another process
};
CudaPointer look_at(const CudaDriver& driver, const void* address);

// Of the bytes there, how many from the first on kernels can access: memory of GPUs, managed and pinned memory. A
// kernel that accesses others ends the program's context. Quicker than look_at(): adjacent mappings count as one.
std::uint64_t reached_by_kernels(const CudaDriver& driver, const void* address, std::uint64_t size);

// While a stream captures in the mode "global", which is CUDA's and PyTorch's default, many calls of any thread are
// refused, and end that capture. Those of this thread are not, for the lifetime of the object.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver) : driver_(driver) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() {
    if (driver_->cuThreadExchangeStreamCaptureMode != nullptr) driver_->cuThreadExchangeStreamCaptureMode(&mode_);
  }
  const CudaDriver& driver_;
  int mode_ = cuda::kCaptureRelaxed;
};

// Makes the device's context current on this thread for the lifetime of the object, then restores the previous one.
// What is called meanwhile ends no capture.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, cuda::Context context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const RelaxedCapture relaxed_;
  const CudaDriver& driver_;
  bool pushed_;
};

// A range of GPU memory exported as a file descriptor (dma-buf), which a NIC driver can register.
struct DmaBuf {
  Fd file;
  std::uint64_t offset = 0;  // of the range within the file
};

// A GPU whose memory NICs read and write over the bus. Immutable; any thread. Owns a reference to the device's context
// and eight bytes of its memory.
class BusGpu {
 public:
  // Allocates GPU memory, which the driver may delay until running kernels end.
  static Result<std::unique_ptr<BusGpu>> open(std::shared_ptr<const CudaDriver> driver, int device);
  ~BusGpu();
  BusGpu(const BusGpu&) = delete;
  BusGpu& operator=(const BusGpu&) = delete;

  // The memory must stay allocated until every importer of the file has released it.
  Result<DmaBuf> export_dmabuf(const void* address, std::uint64_t size) const;
  // Makes the driver's synchronous copies and fills of this memory complete before their call returns. Without this
  // they are not ordered with transfers by other devices (NICs). Best effort: ignores errors of the driver.
  void order_copies(const void* address) const;
  // Eight bytes of this GPU's memory, used by nothing else. A read of them flushes earlier writes to the GPU.
  [[nodiscard]] std::byte* word() const { return reinterpret_cast<std::byte*>(word_); }
  static constexpr std::size_t kWordBytes = 8;
  // Whether data written by a NIC needs flush() before work that starts afterwards can see it.
  [[nodiscard]] bool needs_flush() const { return needs_flush_; }
  Status flush() const;

 private:
  explicit BusGpu(std::shared_ptr<const CudaDriver> driver) : driver_(std::move(driver)) {}

  std::shared_ptr<const CudaDriver> driver_;
  cuda::Device device_ = 0;
  bool retained_ = false;
  cuda::Context context_ = nullptr;
  cuda::Address word_ = 0;
  bool needs_flush_ = false;
};

// The host memory that Fairway has pinned in this process, for whatever engine. Who needs a part of what is pinned
// already shares it: it stays pinned until the last of them has ended its use, and so while any kernel of theirs may
// access it. Any thread.
class CudaPins {
 public:
  explicit CudaPins(const CudaDriver& driver) : driver_(driver) {}

  // As cuMemHostRegister, which it calls unless the memory lies in what is pinned: needs a current context. May take
  // long. kErrorAlreadyRegistered: some of it is pinned and some is not, or it is being unpinned.
  int pin(void* address, std::size_t size);
  // Ends one use, of as many bytes as were asked for. The last one waits for running kernels.
  void unpin(void* address);
  // Whether some of it is pinned by Fairway. Such memory stays so for its users alone.
  [[nodiscard]] bool touches(const void* address, std::size_t size) const;

 private:
  enum class State : std::uint8_t { pinning, pinned, ending };
  struct Range {
    std::uint64_t end = 0;
    std::uint32_t users = 1;
    State state = State::pinning;
  };
  using Ranges = std::map<std::uint64_t, Range>;  // by their begin
  Ranges::iterator at(std::uint64_t begin, std::uint64_t end) const;

  const CudaDriver& driver_;
  mutable std::mutex mutex_;  // guards ranges_
  std::condition_variable changed_;
  mutable Ranges ranges_;
};

// Whether the program itself has pinned all of it, by one call or several, as far as the driver knows at this moment.
bool pinned_by_program(const CudaDriver& driver, const void* address, std::size_t size);

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
