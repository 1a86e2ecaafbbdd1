#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sys/cuda.h"
#include "sys/cuda_memory.h"

namespace fairway::transport::cuda {

using sys::CudaDriver;

// The GPUs that this process sees, each with its primary context once used. The CUDA runtime and all frameworks on it
// share that context. Any thread.
class Devices {
 public:
  explicit Devices(std::shared_ptr<const CudaDriver> driver);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  int count() const { return static_cast<int>(all_.size()); }
  const sys::cuda::Uuid& uuid(int device) const { return all_[static_cast<std::size_t>(device)].uuid; }
  const std::string& name(int device) const { return all_[static_cast<std::size_t>(device)].name; }
  const std::string& bus_id(int device) const { return all_[static_cast<std::size_t>(device)].bus_id; }
  std::optional<int> find(const sys::cuda::Uuid& uuid) const;  // nothing: hidden from this process, or on another host
  bool works_on(int device) const;                             // whether its primary context is active in this process
  // The primary context. The first use may take a second, so not on a data path.
  Result<sys::cuda::Context> use(int device);
  // Enables access of `device` to `other`'s memory. Ok if it is enabled already.
  Status reach(int device, int other);
  bool reads_pages(int device) const;         // whether its kernels access host memory that is not pinned
  bool atomics(int device, int other) const;  // whether `device` supports atomics on `other`'s memory

 private:
  struct One {
    sys::cuda::Device handle = 0;
    sys::cuda::Uuid uuid{};
    std::string name, bus_id;
    sys::cuda::Context context = nullptr;
    bool failed = false;
  };
  std::shared_ptr<const CudaDriver> driver_;
  std::mutex mutex_;  // guards contexts
  std::vector<One> all_;
};

using Current = sys::CurrentContext;

}  // namespace fairway::transport::cuda
