#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fairway/status.h"

#include "collectives/gpu/plan.h"
#include "sys/cuda.h"

namespace fairway::collectives {

// The places of a rank's streams and captures, and where in a stream each one's newest operation ends. Calls are made
// in the GPU's context. Owner: a GpuGroup or GpuFurther, which also destroys the events.
class GpuPlaces {
 public:
  // `whose`: for the error that there is no place, "a communicator serves".
  GpuPlaces(std::shared_ptr<const sys::CudaDriver> driver, const gpu::Places& places, const char* whose)
      : driver_(std::move(driver)), places_(places), whose_(whose), ends_(places.most()) {}

  struct Place {
    std::uint32_t at = 0;
    std::uint64_t nth = 0;  // gpu::Places::Found
  };
  // Where a place is taken over from another stream, this one now waits for that one's end.
  Result<Place> place_of(const gpu::Source& source, sys::cuda::Stream stream);
  [[nodiscard]] bool need_ends() const { return places_.need_ends(); }
  // Behind all of an operation that was enqueued there.
  Status ends_at(const gpu::Source& source, sys::cuda::Stream stream);
  [[nodiscard]] const std::vector<sys::cuda::Event>& events() const { return ends_; }  // null: none was recorded

 private:
  const std::shared_ptr<const sys::CudaDriver> driver_;
  gpu::Places places_;
  const char* const whose_;
  std::vector<sys::cuda::Event> ends_;  // by place
};

}  // namespace fairway::collectives
