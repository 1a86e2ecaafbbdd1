#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "transport/cuda/devices.h"
#include "transport/janitor.h"

namespace fairway::transport::cuda {

// Host memory that the GPUs' copy engines read and write without a detour through the driver's own buffers: pinned from
// its first use on, by the janitor, since that takes longer than a copy. Until then copies take the detour. Pinned for
// all contexts of the process (CU_MEMHOSTREGISTER_PORTABLE), also those made later, so it does not matter in which one:
// but making one takes memory of its GPU and time of whoever works there, so it is that of a device that copies. Any
// thread.
class Pins {
 public:
  Pins(std::shared_ptr<Devices> devices, Janitor& janitor) : devices_(std::move(devices)), janitor_(janitor) {}

  // The first use pins, by `device`, and `then` runs on the janitor once it has, or cannot.
  void use(std::uint64_t key, int device, void* address, std::uint64_t size, std::function<void(bool pinned)> then);
  // `then` runs on the janitor once it is pinned no more: from then on the memory may be unmapped.
  void drop(std::uint64_t key, std::function<void()> then);
  void drop_all();
  bool knows(std::uint64_t key) const;   // also while it is being dropped
  bool pinned(std::uint64_t key) const;  // by this, so kernels reach it

 private:
  struct Pin {
    void* address = nullptr;
    bool ours = false;  // pinned by this
  };
  std::shared_ptr<Devices> devices_;
  Janitor& janitor_;
  mutable std::mutex mutex_;  // guards pins_
  std::unordered_map<std::uint64_t, Pin> pins_;
};

}  // namespace fairway::transport::cuda
