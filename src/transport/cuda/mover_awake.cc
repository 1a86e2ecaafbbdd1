#include <cstring>

#include "transport/cuda/mover.h"

// NVLinks fall asleep after 50 ms without traffic, each by itself, and wake in 0.1 ms (docs/GOTCHAS.md).
namespace fairway::transport::cuda {

std::optional<host::Mover::Waking> CudaMover::waking(const Mover::Imported& imported, std::uint32_t device) const {
  const auto& memory = static_cast<const ImportedAllocation&>(imported);
  const Device& ready = ready_[device];
  if (!memory.by_nvlink(static_cast<int>(device)) || ready.state.load(std::memory_order_acquire) != State::ready)
    return {};
  Waking waking;
  waking.into = ready.queues->scratch();
  if (waking.into.empty()) return {};
  waking.path.device = device;
  waking.path.base = memory.view(static_cast<int>(device)).base;
  waking.path.size = memory.handle().size;
  std::uint64_t halves[2];
  static_assert(sizeof halves == sizeof memory.handle().device);
  std::memcpy(halves, memory.handle().device.bytes, sizeof halves);
  waking.end = halves[0] ^ halves[1];
  return waking;
}

std::string CudaMover::path_description(const Mover::Imported& imported, bool touched) const {
  const auto& memory = static_cast<const ImportedAllocation&>(imported);
  bool by_nvlink = false;
  for (int device = 0; device < devices_->count(); ++device) by_nvlink |= memory.by_nvlink(device);
  std::string text = memory.path_description();
  if (!by_nvlink) return text;
  text += touched ? "; NVLink, kept awake"
                  : "; NVLink sleeps after 50 ms without traffic: the first transfer then takes about 0.2 ms";
  if (touched) return text;
  return text + (keep_awake_ ? ", since nothing of the peer's may be read to keep it awake"
                             : " (EngineOptions::keep_links_awake)");
}

}  // namespace fairway::transport::cuda
