#include "engine/staging/pool.h"

#include <algorithm>

namespace fairway::engine {

StagedChunk* StagingPool::free_chunk(bool for_inner) {
  if (chunks_.empty()) {
    chunks_.resize(kAllChunks);
    for (std::uint32_t i = 0; i < kAllChunks; ++i) chunks_[i].inner = parts_.first_inner + i;
  }
  const auto begin = chunks_.begin() + (for_inner ? kChunks : 0);
  const auto found = std::find_if(begin, begin + kChunks,
                                  [](const StagedChunk& chunk) { return chunk.state == StagedChunk::State::free; });
  return found == begin + kChunks ? nullptr : &*found;
}

std::uint8_t StagingPool::take_slot(Status& why) {
  using Readiness = transport::Copier::Readiness;
  if (parts_.copier == nullptr) {
    why = {ErrorCode::unsupported, "no transport in use here copies a device's memory"};
    return kInPlace;
  }
  if (buffer_ == nullptr) buffer_ = parts_.copier->allocate_staging(kStagingBytes);
  const Readiness is = buffer_->state.load(std::memory_order_acquire);
  if (is == Readiness::opening) return kInPlace;
  if (is == Readiness::refused) why = {ErrorCode::resource_exhausted, "no memory to stage in: " + buffer_->why};
  if (is == Readiness::ready && !region_) {
    const auto region = add_region(*buffer_, Access::none);
    why = region.status();
    if (region) region_ = *region;
  }
  if (!why) {
    buffer_.reset();  // the next request for it tries again
    return kInPlace;
  }
  const std::uint8_t slot = SlotSet::outside(used_, {});
  if (slot != kInPlace) used_.add(slot);
  return slot;
}

void StagingPool::give_back(std::uint8_t slot) {
  used_.remove(slot);
  parts_.again();
}

std::string StagingPool::why_slow() const {
  using Readiness = transport::Copier::Readiness;
  const bool ready = buffer_ != nullptr && buffer_->state.load(std::memory_order_acquire) == Readiness::ready;
  return ready ? buffer_->why : std::string();
}

Result<RegionId> StagingPool::add_region(const transport::Copier::StagingBuffer& buffer, Access access) {
  return parts_.locals.add_own(buffer.memory.address(), kStagingBytes, access, buffer.memory.fd());
}

}  // namespace fairway::engine
