#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/cuda.h"

namespace fairway::transport::cuda {

// Words in pinned memory that say to kernels, and to the host, that a view of some memory has ended. Any thread.
class EndWords : public std::enable_shared_from_this<EndWords> {
 public:
  explicit EndWords(std::shared_ptr<const sys::CudaDriver> driver) : driver_(std::move(driver)) {}
  ~EndWords();

  // Makes them, with a context current: pinning memory may wait for what streams do. Once; again is nothing.
  Status prepare();
  // One that is 0, its taker's until the last owner lets go. Null: none is left.
  std::shared_ptr<std::uint32_t> take();

 private:
  static constexpr std::size_t kWords = 1024, kLine = 64;
  std::shared_ptr<const sys::CudaDriver> driver_;
  std::mutex mutex_;  // guards both
  void* block_ = nullptr;
  std::vector<std::uint32_t*> free_;
};

}  // namespace fairway::transport::cuda
