#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "transport/loopback/wire.h"
#include "transport/offers.h"

namespace fairway::transport::loopback {

class Pipe;

// Matches the two ends of a direct link. Any thread; locks only while links are made, not on the data path.
class DirectWire final : public Wire {
 public:
  explicit DirectWire(std::vector<Device> devices = {default_device()});
  static Device default_device();

  std::uint64_t fabric() const override { return reinterpret_cast<std::uintptr_t>(this); }
  std::span<const Device> devices() const override { return devices_; }
  bool ready(DeviceIndex) const override { return true; }
  std::unique_ptr<Port> offer(std::uint64_t id, End end) override;
  std::unique_ptr<Port> attach(std::uint64_t id, End end) override;

  // Breaks the link of that name for both ends, like a pulled cable: for tests of failover. False: no such link.
  bool cut(std::uint64_t name);

 private:
  const std::vector<Device> devices_;
  std::atomic<std::uint64_t> next_name_{1};
  Offers<Pipe> offers_;
};

}  // namespace fairway::transport::loopback
