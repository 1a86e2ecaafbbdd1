#include "transport/cuda/pins.h"

namespace fairway::transport::cuda {

using namespace sys::cuda;

void Pins::use(std::uint64_t key, int device, void* address, std::uint64_t size,
               std::function<void(bool pinned)> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!pins_.try_emplace(key, Pin{address, false}).second) return;
  }
  const Status posted = janitor_.post([this, key, device, address, size, then] {
    const CudaDriver& cu = devices_->driver();
    bool pinned = false;
    if (const auto context = devices_->use(device)) {
      const Current current(cu, *context);
      // Refused: the user has pinned it already, or it is more than the process may lock, which is slower.
      pinned = cu->cuMemHostRegister_v2(address, size, kHostPortable | kHostMapped) == kSuccess;
      const std::lock_guard lock(mutex_);
      pins_[key].ours = pinned;
    }
    then(pinned);
  });
  if (!posted) then(false);  // stays unpinned, as when the driver refuses
}

void Pins::drop(std::uint64_t key, std::function<void()> then) {
  janitor_.end([this, key, then = std::move(then)] {
    Pin pin;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = pins_.find(key); found != pins_.end()) pin = found->second;
    }
    if (pin.ours) devices_->driver()->cuMemHostUnregister(pin.address);
    {
      const std::lock_guard lock(mutex_);
      pins_.erase(key);
    }
    then();
  });
}

void Pins::drop_all() {
  std::vector<std::uint64_t> keys;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, pin] : pins_) keys.push_back(key);
  }
  for (const std::uint64_t key : keys) drop(key, [] {});
}

bool Pins::pinned(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = pins_.find(key);
  return found != pins_.end() && found->second.ours;
}

bool Pins::knows(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  return pins_.contains(key);
}

}  // namespace fairway::transport::cuda
