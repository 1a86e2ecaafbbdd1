#include "sys/nvml.h"

#include <cstdlib>

#include <dlfcn.h>

namespace fairway::sys {
namespace {

// The part of its stable ABI that is used ("NVML API Reference", device queries).
using Device = void*;
constexpr int kSuccess = 0, kNvlink = 2, kAtomics = 3, kStatusOk = 0;

class Library {
 public:
  Library() {
    const char* named = std::getenv("FAIRWAY_NVML");  // for tests
    library_ = ::dlopen(named != nullptr ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    shutdown_ = find<int (*)()>("nvmlShutdown");
    by_bus_id_ = find<Handle>("nvmlDeviceGetHandleByPciBusId_v2");
    by_uuid_ = find<Handle>("nvmlDeviceGetHandleByUUID");
    status_ = find<int (*)(Device, Device, int, int*)>("nvmlDeviceGetP2PStatus");
    begun_ = init != nullptr && shutdown_ != nullptr && init() == kSuccess;
  }
  ~Library() {
    if (begun_) shutdown_();
    if (library_ != nullptr) ::dlclose(library_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::optional<bool> has(int what, const std::string& gpu, const std::string& other) const {
    Device one = nullptr, two = nullptr;
    int status = 0;
    if (!begun_ || status_ == nullptr || !find_device(gpu, one) || !find_device(other, two)) return {};
    if (one == two) return true;
    if (status_(one, two, what, &status) != kSuccess) return {};
    return status == kStatusOk;
  }

 private:
  using Handle = int (*)(const char*, Device*);
  template <class Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(library_, name));
  }
  bool find_device(const std::string& name, Device& device) const {
    const Handle handle = name.starts_with("GPU-") ? by_uuid_ : by_bus_id_;
    return handle != nullptr && handle(name.c_str(), &device) == kSuccess;
  }

  void* library_ = nullptr;
  int (*shutdown_)() = nullptr;
  Handle by_bus_id_ = nullptr, by_uuid_ = nullptr;
  int (*status_)(Device, Device, int, int*) = nullptr;
  bool begun_ = false;
};

}  // namespace

std::optional<bool> native_atomics(const std::string& gpu, const std::string& other) {
  return Library().has(kAtomics, gpu, other);
}

std::optional<bool> over_nvlink(const std::string& gpu, const std::string& other) {
  return Library().has(kNvlink, gpu, other);
}

}  // namespace fairway::sys
