#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/cuda.h"
#include "transport/stream_gate.h"

namespace fairway::transport::cuda {

// Words in pinned memory on which streams wait. Words are reused: each only grows, and a stream waits until its word
// has reached a number, so a late stream whose word is in use again continues at once. Any thread.
class Gates : public std::enable_shared_from_this<Gates> {
 public:
  explicit Gates(std::shared_ptr<const sys::CudaDriver> driver) : driver_(std::move(driver)) {}
  ~Gates();

  // Allocates words in advance; needs a current context. Pinning memory may wait for running streams.
  void prepare();
  // Makes `stream` wait until the gate opens; does not block the host.
  Result<std::shared_ptr<StreamGate>> hold(void* stream);

 private:
  struct Word {
    std::uint32_t* at = nullptr;  // pinned
    std::uint32_t last = 0;       // number of its latest gate
  };
  class Gate;
  Status add_words();

  static constexpr std::size_t kWords = 1024;  // added at once, a cache line each
  std::shared_ptr<const sys::CudaDriver> driver_;
  std::mutex mutex_;  // guards both
  std::vector<Word> free_;
  std::vector<void*> blocks_;
};

}  // namespace fairway::transport::cuda
