#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "sys/cuda.h"
#include "sys/fd.h"

namespace fairway::sys {

// What is known of a pointer by asking the driver: some microseconds, no context needed.
struct CudaPointer {
  std::optional<MemoryKind> kind;  // nothing: not the driver's
  int device = -1;
  std::uint64_t allocation = 0;  // its number, never used twice in a process
  std::uint64_t base = 0, size = 0;
  bool ipc = false, file = false;  // ways in which it may be lent to a process
};
CudaPointer look_at(const CudaDriver& driver, const void* address);

// The device's context as the calling thread's, for as long as this lives; what was current before comes back.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, cuda::Context context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_;
};

// Part of a GPU's memory as a file that a NIC's driver maps for its device.
struct DmaBuf {
  Fd file;
  std::uint64_t offset = 0;  // of the part in it
};

// A GPU whose memory a NIC reads and writes over the bus. Immutable; any thread. A resource: a context, and a word.
class BusGpu {
 public:
  // Allocates: the driver may let that wait for kernels that run.
  static Result<std::unique_ptr<BusGpu>> open(std::shared_ptr<const CudaDriver> driver, int device);
  ~BusGpu();
  BusGpu(const BusGpu&) = delete;
  BusGpu& operator=(const BusGpu&) = delete;

  // The memory's end must come after that of who maps the file.
  Result<DmaBuf> export_dmabuf(const void* address, std::uint64_t size) const;
  // From now on the driver's copies and fills there are over when their call returns, as those that go beside it
  // (NICs) are not ordered with them otherwise. As well as the driver can.
  void order_copies(const void* address) const;
  // Eight bytes of this GPU's memory, of nobody else: a read of them pushes what was written to it before.
  [[nodiscard]] std::byte* word() const { return reinterpret_cast<std::byte*>(word_); }
  static constexpr std::size_t kWordBytes = 8;
  // Whether what a NIC wrote needs flush() before work that starts afterwards sees it.
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

}  // namespace fairway::sys
