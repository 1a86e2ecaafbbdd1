#include "transport/cuda/pins.h"

#include <algorithm>
#include <utility>

#include "sys/cuda_memory.h"

namespace fairway::transport::cuda {

void Pins::use(std::uint64_t key, int device, void* address, std::uint64_t size,
               std::function<void(bool pinned)> then) {
  {
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = pins_.try_emplace(key);
    if (!fresh) return;
    found->second.address = address;
  }
  const Status posted = opening_.post([this, key, device, address, size, then] {
    // Refused: the user has pinned some of it already, or it is more than the process may lock, which is slower.
    int result = sys::cuda::kErrorInvalidValue;
    if (const auto context = devices_->use(device)) {
      const Current current(devices_->driver(), *context);
      result = devices_->driver().pins().pin(address, size);
    }
    then(result == sys::cuda::kSuccess);
    settle(key, result);
  });
  if (posted) return;
  then(false);  // stays unpinned, as when the driver refuses
  settle(key, sys::cuda::kErrorInvalidValue);
}

void Pins::settle(std::uint64_t key, int result) {
  const bool pinned = result == sys::cuda::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pins_.find(key);
    Pin& pin = found->second;
    pin.state = pin.dropped ? State::ending : pinned ? State::pinned : State::refused;
    if (!pin.dropped) {
      if (sys::cuda::refused_by_capture(result)) pins_.erase(found);  // the next use tries again
      return;
    }
  }
  end(key, pinned);
}

void Pins::drop(std::uint64_t key, std::function<void()> then) {
  bool pinned = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pins_.find(key);
    if (found == pins_.end()) return closing_->post(std::move(then));
    Pin& pin = found->second;
    pin.then.push_back(std::move(then));
    if (std::exchange(pin.dropped, true) || pin.state == State::pinning) return;  // settle() goes on
    pinned = pin.state == State::pinned;
    pin.state = State::ending;
  }
  end(key, pinned);
}

void Pins::end(std::uint64_t key, bool pinned) {
  closing_->post([self = shared_from_this(), key, pinned] {
    void* address = nullptr;
    {
      const std::lock_guard lock(self->mutex_);
      address = self->pins_.at(key).address;
    }
    if (pinned) self->devices_->driver().pins().unpin(address);
    Pin pin;
    {
      const std::lock_guard lock(self->mutex_);
      pin = std::move(self->pins_.at(key));
      self->pins_.erase(key);
    }
    for (const auto& then : pin.then) then();
  });
}

void Pins::drop_all() {
  std::vector<std::uint64_t> keys;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, pin] : pins_)
      if (!pin.dropped) keys.push_back(key);
  }
  for (const std::uint64_t key : keys) drop(key, [] {});
}

bool Pins::pinned(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = pins_.find(key);
  return found != pins_.end() && found->second.state == State::pinned;
}

bool Pins::knows_below(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(pins_.begin(), pins_.end(), [key](const auto& each) { return each.first < key; });
}

bool Pins::knows(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  return pins_.contains(key);
}

}  // namespace fairway::transport::cuda
