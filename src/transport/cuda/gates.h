#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/cuda.h"
#include "transport/cuda/devices.h"
#include "transport/gpu_access.h"

namespace fairway::transport::cuda {

// Words in pinned memory on which streams wait. Words are reused: each only grows, and a stream waits until its word
// has reached a number, so a late stream whose word is in use again continues at once. Each GPU has its own, which are
// freed once all is over that it has been given: a stream may still have to look at one that was reached long ago. Any
// thread.
class Gates : public std::enable_shared_from_this<Gates> {
 public:
  explicit Gates(std::shared_ptr<Devices> devices) : devices_(std::move(devices)) {}
  ~Gates();  // may wait for running kernels

  // Allocates words of that device in advance. Pinning memory may wait for running streams.
  void prepare(int device);
  // Makes `stream` wait until the gate opens; does not block the host.
  Result<std::shared_ptr<StreamGate>> hold(void* stream);

 private:
  struct Word {
    std::uint32_t* at = nullptr;  // pinned
    std::uint32_t last = 0;       // number of its latest gate
  };
  struct Words {
    std::vector<Word> free;
    std::vector<void*> blocks;
  };
  class Gate;
  [[nodiscard]] int device_of(sys::cuda::Context context) const;
  Status add(int device, Words& words);

  static constexpr std::size_t kWords = 1024;  // added at once, a cache line each
  const std::shared_ptr<Devices> devices_;
  std::mutex mutex_;            // guards words_
  std::map<int, Words> words_;  // by device
};

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
