#pragma once

#include <memory>
#include <string>

#include "bench.h"
#include "sys/cuda.h"

namespace fairway::tool::bench {

// Memory of the driver's, for benchmarks. Owner: one thread.
class Gpu {
 public:
  static Result<std::shared_ptr<Gpu>> open();
  ~Gpu();

  int count() const { return driver_->devices(); }
  enum class Kind : std::uint8_t {
    device,  // cudaMalloc's
    mapped,  // virtual memory management, with a descriptor for other processes
    locked,  // the same without one: it cannot be lent
    managed,
    pinned,  // of the host
  };
  // Freed with the last copy of the pointer.
  Result<std::shared_ptr<std::byte>> allocate(Kind kind, int device, std::uint64_t size);
  // By that device, which must reach both; over when it returns, and behind nobody else's work.
  Status copy(int device, std::byte* to, const std::byte* from, std::uint64_t size);
  const sys::CudaDriver& driver() const { return *driver_; }
  // Runs with the device's context as the thread's.
  Status on(int device, const std::function<Status()>& call);

 private:
  Gpu() = default;
  Result<std::shared_ptr<std::byte>> map(bool lendable, int device, std::uint64_t size);

  std::shared_ptr<const sys::CudaDriver> driver_;
  std::vector<sys::cuda::Context> contexts_;
  std::vector<sys::cuda::Stream> streams_;  // by device, made when first used
};

int gpu_count();  // that the driver shows; 0 without one

// "gpu:1", "gpu:1:mapped": false when the name is not of that form.
bool parse_gpu(const std::string& name, int& device, Gpu::Kind& kind);

// The same work by the driver alone, in this process: a copy, a word after it, and a loop that waits for the word.
std::unique_ptr<Mover> open_copy_roof(const std::string& from, const std::string& to, std::uint64_t most);

}  // namespace fairway::tool::bench
