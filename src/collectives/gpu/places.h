#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "fairway/status.h"

#include "collectives/gpu/plan.h"
#include "sys/cuda.h"

namespace fairway::collectives {

// Which captures still have a graph, or an executable one. One thread; the driver's, which destroys graphs, beside it.
class GpuGraphs {
 public:
  explicit GpuGraphs(std::shared_ptr<const sys::CudaDriver> driver) : driver_(std::move(driver)) {}

  // Of a capture that goes on, and whose graph that is.
  void add(std::uint64_t capture, sys::cuda::Graph graph);
  // Nothing of it runs any more, nor ever will. The driver of a machine that cannot tell says so of none.
  [[nodiscard]] bool is_over(std::uint64_t capture) const;
  [[nodiscard]] bool any() const;

 private:
  struct Known {
    std::uint64_t capture = 0;
    std::weak_ptr<const void> graph;
  };
  const std::shared_ptr<const sys::CudaDriver> driver_;
  std::shared_ptr<const void> for_ever_;  // of those of which the driver does not tell
  std::vector<Known> known_;
};

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
  [[nodiscard]] bool are_taken() const { return places_.are_taken(); }
  [[nodiscard]] bool lacks(const gpu::Source& source) const { return places_.lacks(source); }
  [[nodiscard]] gpu::Places::Set over(const GpuGraphs& graphs) const {
    return places_.over([&](std::uint64_t capture) { return graphs.is_over(capture); });
  }
  void give_back(const gpu::Places::Set& places) { places_.give_back(places); }
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
