#include "collectives/gpu/windows.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "collectives/host/lanes.h"

namespace fairway::collectives {

struct GpuWindows::Shown {
  Shown(Engine& engine_in, const Region& own_in, int size)
      : engine(engine_in), own(own_in), bytes(own_in.size_bytes), mappings(static_cast<std::size_t>(size)) {}
  ~Shown() {
    constexpr Timeout kTakingBack{1'000'000};
    if (!engine.is_open()) return;
    unmap();
    if (own.id) (void)engine.deregister(own, kTakingBack);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  void unmap() {
    for (Mapping& mapping : mappings)
      if (mapping.id) (void)engine.unmap(std::exchange(mapping, {}).id);
  }

  Engine& engine;
  Region own;
  std::uint64_t bytes;            // that every rank has
  std::vector<Mapping> mappings;  // of the others', by rank
};

GpuWindows::GpuWindows(Engine& engine, int device, int rank, int size)
    : engine_(engine), device_(device), rank_(rank), size_(size) {}
GpuWindows::~GpuWindows() = default;

Status GpuWindows::begin(void* memory, std::uint64_t size_bytes, const std::string& name) {
  const auto region = engine_.register_memory(memory, size_bytes, Access::read);
  if (!region) return region.status();
  begun_ = std::make_unique<Shown>(engine_, *region, size_);
  return engine_.publish(name, *region);
}

Status GpuWindows::meet(const std::vector<Member>& members, const std::string& name, Time deadline) {
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const auto remote = engine_.lookup(members[rank].peer, name, until(deadline));
    const auto mapping = remote ? engine_.map(*remote, device_, until(deadline)) : Result<Mapping>(remote.status());
    if (!mapping) return mapping.status().with_context(members[rank].name);
    begun_->mappings[rank] = *mapping;
    begun_->bytes = std::min(begun_->bytes, mapping->size_bytes);
  }
  return {};
}

WindowId GpuWindows::keep() {
  shown_.push_back(std::move(begun_));
  return {shown_.size()};
}

void GpuWindows::drop() {
  begun_.reset();
}

GpuWindows::Shown* GpuWindows::at(WindowId window) const {
  return window.number == 0 || window.number > shown_.size() ? nullptr : shown_[window.number - 1].get();
}

Status GpuWindows::forget(WindowId window) {
  Shown* const shown = at(window);
  if (shown == nullptr) return {ErrorCode::not_found, fmt::format("there is no window {}", window.number)};
  shown->unmap();
  return {};
}

Status GpuWindows::end(WindowId window, Timeout timeout) {
  std::unique_ptr<Shown> ends = std::move(shown_[window.number - 1]);
  const Status status = engine_.deregister(ends->own, timeout);
  if (status.code() == ErrorCode::not_fenced)
    ending_.push_back(std::move(ends));  // asked once more at the communicator's end
  else
    ends->own = {};
  return status;
}

std::optional<GpuWindows::Place> GpuWindows::find(const void* memory, std::uint64_t size_bytes) const {
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    if (!shown_[i]) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(shown_[i]->own.address);
    const std::uint64_t bytes = shown_[i]->bytes;
    if (at < begin || at - begin > bytes || size_bytes > bytes - (at - begin)) continue;
    Place place{{i + 1}, at - begin};
    for (std::size_t rank = 0; rank < shown_[i]->mappings.size(); ++rank)
      if (static_cast<int>(rank) != rank_)
        place.others[rank] = reinterpret_cast<const unsigned char*>(shown_[i]->mappings[rank].address) + place.offset;
    return place;
  }
  return {};
}

}  // namespace fairway::collectives
