#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "fairway/status.h"

#include "collectives/gpu_plan.h"
#include "sys/cuda.h"

namespace fairway::collectives {

// The places of a rank's streams and captures, and where in a stream each one's newest operation ends. Calls are made
// in the GPU's context. Owner: a GpuGroup, which also destroys the events.
class GpuPlaces {
 public:
  explicit GpuPlaces(std::shared_ptr<const sys::CudaDriver> driver) : driver_(std::move(driver)) {}

  // Where a place is taken over from another stream, this one now waits for that one's end.
  Result<std::uint32_t> place_of(const gpu::Source& source, sys::cuda::Stream stream);
  [[nodiscard]] bool need_ends() const { return places_.need_ends(); }
  // Behind all of an operation that was enqueued there.
  Status ends_at(const gpu::Source& source, sys::cuda::Stream stream);
  using Events = std::array<sys::cuda::Event, gpu::Layout::kPlaces>;
  [[nodiscard]] const Events& events() const { return ends_; }  // null: none was recorded

 private:
  const std::shared_ptr<const sys::CudaDriver> driver_;
  gpu::Places places_;
  Events ends_ = {};
};

}  // namespace fairway::collectives
