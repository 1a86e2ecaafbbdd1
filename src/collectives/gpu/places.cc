#include "collectives/gpu/places.h"

#include <fmt/format.h>

namespace fairway::collectives {

Result<GpuPlaces::Place> GpuPlaces::place_of(const gpu::Source& source, sys::cuda::Stream stream) {
  const auto [place, after, nth] = places_.place_of(source);
  if (place < 0)
    return Status(ErrorCode::resource_exhausted,
                  fmt::format("{} {} captures, and the streams beside them: set GpuOptions::graphs_in_turn where "
                              "graphs are launched one after the other, or make another communicator by split()",
                              whose_, places_.most()));
  const auto at = static_cast<std::uint32_t>(place);
  const sys::CudaDriver& cu = *driver_;
  if (after) {
    const Status status =
        cu.check(cu->cuStreamWaitEvent(stream, ends_[at], 0), "waiting for the stream that had its place");
    if (!status) return status;
  }
  return Place{at, nth};
}

Status GpuPlaces::ends_at(const gpu::Source& source, sys::cuda::Stream stream) {
  const auto place = places_.find(source);
  if (!place || source.capture != 0) return {};
  constexpr unsigned kNoTiming = 2;
  const sys::CudaDriver& cu = *driver_;
  sys::cuda::Event& end = ends_[*place];
  Status status;
  if (end == nullptr) status = cu.check(cu->cuEventCreate(&end, kNoTiming), "making an event");
  if (status) status = cu.check(cu->cuEventRecord(end, stream), "recording an operation's end");
  if (status) places_.has_end(*place);
  return status;
}

}  // namespace fairway::collectives
