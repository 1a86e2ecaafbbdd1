#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "transport/cuda/devices.h"
#include "transport/janitor.h"

namespace fairway::transport::cuda {

// Pinned host memory, which copy engines access directly rather than through the driver's buffers. Memory is pinned at
// its first use, on the janitor, since that takes longer than a copy; until then copies go through the driver's
// buffers. It is pinned for all contexts of the process, also later ones (CU_MEMHOSTREGISTER_PORTABLE). It is done in
// the context of a device that copies, since making another context costs GPU memory and time. Any thread.
class Pins {
 public:
  Pins(std::shared_ptr<Devices> devices, Janitor& janitor) : devices_(std::move(devices)), janitor_(janitor) {}

  // The first use pins the memory in the context of `device`; `then` runs on the janitor after success or failure.
  void use(std::uint64_t key, int device, void* address, std::uint64_t size, std::function<void(bool pinned)> then);
  // Unpins the memory; `then` runs on the janitor afterwards, when the memory may be unmapped.
  void drop(std::uint64_t key, std::function<void()> then);
  void drop_all();
  bool knows(std::uint64_t key) const;   // also true while it is being unpinned
  bool pinned(std::uint64_t key) const;  // pinned by this object, so kernels can access it

 private:
  struct Pin {
    void* address = nullptr;
    bool ours = false;  // pinned by this object
  };
  std::shared_ptr<Devices> devices_;
  Janitor& janitor_;
  mutable std::mutex mutex_;  // guards pins_
  std::unordered_map<std::uint64_t, Pin> pins_;
};

}  // namespace fairway::transport::cuda
