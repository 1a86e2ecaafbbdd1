#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/cuda.h"

namespace fairway::transport::cuda {

// Words in pinned memory that tell kernels and the host that a view has ended. Any thread.
class EndWords : public std::enable_shared_from_this<EndWords> {
 public:
  explicit EndWords(std::shared_ptr<const sys::CudaDriver> driver) : driver_(std::move(driver)) {}
  ~EndWords();

  // Allocates them; needs a current context. Pinning memory may wait for running streams. A second call does nothing.
  Status prepare();
  // A word of value 0, the caller's until its last owner is gone. Null: none is left.
  std::shared_ptr<std::uint32_t> take();

 private:
  static constexpr std::size_t kWords = 1024, kLine = 64;
  std::shared_ptr<const sys::CudaDriver> driver_;
  std::mutex mutex_;  // guards both
  void* block_ = nullptr;
  std::vector<std::uint32_t*> free_;
};

}  // namespace fairway::transport::cuda
