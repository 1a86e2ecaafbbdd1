#include <algorithm>

#include "sys/cuda_memory.h"
#include "transport/cuda/mover.h"

// Copies between regions and the engine's staging buffers.
namespace fairway::transport::cuda {

std::shared_ptr<transport::Copier::StagingBuffer> CudaMover::allocate_staging(std::uint64_t size_bytes) {
  std::shared_ptr<StagingBuffer> buffer(new StagingBuffer, [devices = devices_, closing = closing_](auto* ends) {
    closing->post([devices, ends] {
      if (ends->memory.address() != nullptr) devices->driver().pins().unpin(ends->memory.address());
      delete ends;
    });
  });
  std::erase_if(staging_buffers_, [](const auto& each) { return each.expired(); });
  staging_buffers_.push_back(buffer);
  const Status posted = open_on_thread([this, buffer, size_bytes] {
    auto memory = sys::MemoryFile::make(size_bytes);
    if (memory) {
      buffer->memory = std::move(*memory);
      buffer->why = pin(buffer->memory.address(), size_bytes).message();
    } else {
      buffer->why = memory.status().message();
    }
    buffer->state.store(memory ? Readiness::ready : Readiness::refused, std::memory_order_release);
    waker_->wake();
  });
  if (!posted) {
    buffer->why = posted.message();
    buffer->state.store(Readiness::refused, std::memory_order_release);
  }
  return buffer;
}

Status CudaMover::pin(std::byte* address, std::uint64_t size_bytes) {
  const auto context = devices_->use(working_device());
  if (!context) return context.status();
  const Current current(devices_->driver(), *context);
  return devices_->driver().check(devices_->driver().pins().pin(address, size_bytes), "pinning memory");
}

// Whether the copies are between a device and a pinned staging buffer, so that a kernel or one batch call can do them.
bool CudaMover::in_pinned_staging(std::span<const Copy> copies) const {
  if (copies.size() < Queues::kBatchFrom) return false;
  for (const auto& each : staging_buffers_) {
    const auto buffer = each.lock();
    if (!buffer || buffer->state.load(std::memory_order_acquire) != Readiness::ready || !buffer->why.empty()) continue;
    const auto holds = [&](const std::byte* place) {
      return place >= buffer->memory.address() && place < buffer->memory.address() + buffer->memory.size_bytes();
    };
    if (holds(copies.front().to) || holds(copies.front().from)) return true;  // then all of them are
  }
  return false;
}

// Cuts the copies into pieces for the kernel; returns them unchanged if there is no kernel or too many pieces.
std::span<const transport::Copier::Copy> CudaMover::cut(const Path& on, std::span<const Copy> copies) {
  std::uint64_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.size;
  const std::uint64_t most = part(on, bytes / copies.size(), copies.size());
  const std::span<Copy> list = this->list(on);
  if (!ready_[on.device].queues->is_listed(list)) return copies;
  std::size_t count = 0;
  for (const Copy& copy : copies)
    for (std::uint64_t at = 0; at < copy.size; at += std::min(most, copy.size - at)) {
      if (count == list.size()) return copies;
      list[count++] = {copy.to + at, copy.from + at, std::min(most, copy.size - at)};
    }
  return list.first(count);
}

host::Mover::Readiness CudaMover::copy(RegionId region, std::span<const Copy> copies, bool urgent, void* after,
                                       Ticket& out, std::string& why) {
  Path on;
  if (const Readiness ready = path(region, nullptr, {.pieces = copies.size()}, on, why);
      ready != Readiness::ready || copies.empty())
    return ready;
  on.kernels = on.kernels && in_pinned_staging(copies);
  const Status started = start(on, on.kernels ? cut(on, copies) : copies, urgent, after, out);
  if (!started) why = started.message();
  return started ? Readiness::ready : Readiness::refused;
}

}  // namespace fairway::transport::cuda
