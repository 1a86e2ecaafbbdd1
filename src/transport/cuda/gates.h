#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/cuda.h"
#include "transport/stream_gate.h"

namespace fairway::transport::cuda {

// Words in pinned memory that streams wait for, each used again and again: it only grows, and a stream waits until it
// has reached a number, so one that comes late to a word that others use by now goes on at once. Any thread.
class Gates : public std::enable_shared_from_this<Gates> {
 public:
  explicit Gates(std::shared_ptr<const sys::CudaDriver> driver) : driver_(std::move(driver)) {}
  ~Gates();

  // Makes words beforehand, with a context current: pinning memory may wait for what streams do.
  void prepare();
  // From here on `stream` stands until the gate opens; the host goes on.
  Result<std::shared_ptr<StreamGate>> hold(void* stream);

 private:
  struct Word {
    std::uint32_t* at = nullptr;  // pinned
    std::uint32_t last = 0;       // number of the gate that it is or was
  };
  class Gate;
  Status more();  // words

  static constexpr std::size_t kWords = 1024;  // made at once, a cache line each
  std::shared_ptr<const sys::CudaDriver> driver_;
  std::mutex mutex_;  // guards both
  std::vector<Word> free_;
  std::vector<void*> blocks_;
};

}  // namespace fairway::transport::cuda
