#include "memory.h"

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include <dlfcn.h>

#include "support/cuda/device_memory.h"
#include "support/cuda/exported.h"

namespace fairway::threads {
namespace {

constexpr const char* kDriver = "FAIRWAY_CUDA_DRIVER";

support::DeviceMemory& gpus() {
  static support::DeviceMemory memory;  // a child of this process has its own
  return memory;
}

std::span<std::byte> for_cpus(std::byte* device, std::size_t size) {
  void* const driver = ::dlopen(FAIRWAY_STANDIN_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) throw std::runtime_error(::dlerror());
  const auto where = reinterpret_cast<bool (*)(std::uint64_t, std::uint64_t, standin::Exported*)>(
      ::dlsym(driver, "fairway_standin_where"));
  standin::Exported found;
  if (where == nullptr || !where(reinterpret_cast<std::uint64_t>(device), size, &found))
    throw std::runtime_error("no memory of the stand-in driver");
  ::dlclose(driver);
  return {reinterpret_cast<std::byte*>(found.bytes), size};
}

}  // namespace

StandInDriver::StandInDriver() {
  if (const char* before = std::getenv(kDriver)) before_ = before;
  ::setenv(kDriver, FAIRWAY_STANDIN_CUDA, 1);
}

StandInDriver::~StandInDriver() {
  if (before_)
    ::setenv(kDriver, before_->c_str(), 1);
  else
    ::unsetenv(kDriver);
}

Memory::Memory(std::size_t size, std::optional<int> gpu) {
  if (gpu) {
    device_ = gpus().allocate(size, *gpu);
    bytes_ = for_cpus(device_, size);
  } else {
    host_.resize(size);
    bytes_ = host_;
  }
}

Memory::~Memory() {
  if (device_ != nullptr) gpus().free(device_);
}

}  // namespace fairway::threads
