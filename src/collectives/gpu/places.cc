#include "collectives/gpu/places.h"

#include <algorithm>

#include <fmt/format.h>

namespace fairway::collectives {

// A user object of the graph, which the driver destroys with the last that was made of it ("CUDA Driver API", graph
// management).
void GpuGraphs::add(std::uint64_t capture, sys::cuda::Graph graph) {
  if (std::any_of(known_.begin(), known_.end(), [&](const Known& each) { return each.capture == capture; })) return;
  std::erase_if(known_, [](const Known& each) { return each.graph.expired(); });
  using Word = std::shared_ptr<const void>;
  auto word = std::make_unique<Word>(std::make_shared<char>());
  known_.push_back({capture, *word});
  const sys::CudaDriver& cu = *driver_;
  sys::cuda::UserObject object = nullptr;
  if (cu->cuUserObjectCreate != nullptr && cu->cuUserObjectRelease != nullptr &&
      cu->cuGraphRetainUserObject != nullptr &&
      cu->cuUserObjectCreate(
          &object, word.get(), [](void* ended) { delete static_cast<Word*>(ended); }, 1,
          sys::cuda::kNoSynchronization) == sys::cuda::kSuccess) {
    (void)word.release();  // the object's
    if (cu->cuGraphRetainUserObject(graph, object, 1, sys::cuda::kMoveReference) == sys::cuda::kSuccess) return;
    cu->cuUserObjectRelease(object, 1);
  }
  if (!for_ever_) for_ever_ = std::make_shared<char>();
  known_.back().graph = for_ever_;
}

bool GpuGraphs::is_over(std::uint64_t capture) const {
  return std::none_of(known_.begin(), known_.end(),
                      [&](const Known& each) { return each.capture == capture && !each.graph.expired(); });
}

bool GpuGraphs::any() const {
  return std::any_of(known_.begin(), known_.end(), [](const Known& each) { return !each.graph.expired(); });
}

Result<GpuPlaces::Place> GpuPlaces::place_of(const gpu::Source& source, sys::cuda::Stream stream) {
  const auto [place, after, nth] = places_.place_of(source);
  if (place < 0)
    return Status(ErrorCode::resource_exhausted,
                  fmt::format("{} {} captures whose graphs some rank still has, and the streams beside them: set "
                              "GpuOptions::graphs_in_turn where graphs are launched one after the other, or make "
                              "another communicator by split()",
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
