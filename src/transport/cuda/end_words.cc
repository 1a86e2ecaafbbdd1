#include "transport/cuda/end_words.h"

#include <atomic>
#include <cstring>

namespace fairway::transport::cuda {

using namespace sys::cuda;

EndWords::~EndWords() {
  if (block_ != nullptr) (*driver_)->cuMemFreeHost(block_);
}

Status EndWords::prepare() {
  const std::lock_guard lock(mutex_);
  if (block_ != nullptr) return {};
  const Status status = driver_->check((*driver_)->cuMemHostAlloc(&block_, kWords * kLine, kHostPortable | kHostMapped),
                                       "pinning memory");
  if (!status) return status;
  std::memset(block_, 0, kWords * kLine);
  for (std::size_t i = 0; i < kWords; ++i)
    free_.push_back(reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(block_) + i * kLine));
  return {};
}

std::shared_ptr<std::uint32_t> EndWords::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  std::uint32_t* word = free_.back();
  free_.pop_back();
  std::atomic_ref(*word).store(0, std::memory_order_relaxed);
  return {word, [words = shared_from_this()](std::uint32_t* mine) {
            const std::lock_guard back(words->mutex_);
            words->free_.push_back(mine);
          }};
}

}  // namespace fairway::transport::cuda
