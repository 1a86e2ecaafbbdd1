#include "engine/links/scratch_memory.h"

namespace fairway::engine {

void OwnMemory::make(LocalRegions& regions, std::size_t size_bytes, Access access) {
  bytes.reset(static_cast<std::byte*>(std::calloc(size_bytes, 1)));
  missing = {ErrorCode::resource_exhausted, "no memory is left for the engine's own use"};
  if (bytes == nullptr) return;
  const auto id = regions.add_own(bytes.get(), size_bytes, access);
  missing = id.status();
  if (id) region = *id;
}

std::uint32_t ScratchMemory::take() {
  if (free_.empty()) return taken_++;
  const std::uint32_t place = free_.back();
  free_.pop_back();
  return place;
}

OwnMemory& ScratchMemory::of(std::uint32_t place) {
  OwnMemory& share = shares_[place / kPeersPerShare];
  if (share.bytes == nullptr) share.make(regions_, kPeersPerShare * size_bytes_, Access::read | Access::write);
  return share;
}

}  // namespace fairway::engine
