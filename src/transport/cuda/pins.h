#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "sys/cuda_memory.h"
#include "transport/cuda/devices.h"
#include "transport/janitor.h"

namespace fairway::transport::cuda {

// Pinned host memory, which copy engines access directly rather than through the driver's buffers. Memory is pinned at
// its first use, by `opening`, since that takes longer than a copy; until then copies go through the driver's buffers.
// It is unpinned by `closing`, since that waits for kernels. It is pinned for all contexts of the process, also later
// ones (CU_MEMHOSTREGISTER_PORTABLE). It is done in the context of a device that copies, since making another context
// costs GPU memory and time. Any thread.
class Pins : public std::enable_shared_from_this<Pins> {
 public:
  Pins(std::shared_ptr<Devices> devices, Janitor& opening, std::shared_ptr<sys::CudaClosing> closing)
      : devices_(std::move(devices)), opening_(opening), closing_(std::move(closing)) {}

  // The first use pins the memory in the context of `device`; `then` runs on that thread after success or failure.
  void use(std::uint64_t key, int device, void* address, std::uint64_t size, std::function<void(bool pinned)> then);
  // Unpins the memory, behind its use; `then` runs afterwards, when the memory may be unmapped.
  void drop(std::uint64_t key, std::function<void()> then);
  void drop_all();
  bool knows(std::uint64_t key) const;        // also true while it is being unpinned
  bool knows_below(std::uint64_t key) const;  // one that is smaller
  bool pinned(std::uint64_t key) const;       // by this object: all of it, until drop(). So kernels can access it

 private:
  enum class State : std::uint8_t { pinning, pinned, refused, ending };
  struct Pin {
    void* address = nullptr;
    State state = State::pinning;
    bool dropped = false;                     // while it was being pinned
    std::vector<std::function<void()>> then;  // of drop()
  };
  void settle(std::uint64_t key, int result);
  void end(std::uint64_t key, bool pinned);

  std::shared_ptr<Devices> devices_;
  Janitor& opening_;
  const std::shared_ptr<sys::CudaClosing> closing_;
  mutable std::mutex mutex_;  // guards pins_
  std::unordered_map<std::uint64_t, Pin> pins_;
};

}  // namespace fairway::transport::cuda
