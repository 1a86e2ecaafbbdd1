#pragma once

#include "conformance/buffer.h"
#include "support/cuda/device_memory.h"

namespace fairway::conformance {

// Buffers on the GPUs of this machine in turn, or on what stands in for them.
class OnGpus final : public Placement {
 public:
  std::byte* allocate(std::size_t size) override { return memory_.allocate(size, static_cast<int>(next_++)); }
  void free(std::byte* place) override { memory_.free(place); }
  void upload(std::byte* to, std::span<const std::byte> from) override { memory_.write(to, from); }
  void download(std::span<std::byte> to, const std::byte* from) override { memory_.read(to, from); }

 private:
  support::DeviceMemory memory_;
  unsigned next_ = 0;
};

}  // namespace fairway::conformance
