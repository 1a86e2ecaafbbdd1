#include "sys/cuda.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "sys/cuda_memory.h"

namespace fairway::sys {
namespace {

constexpr int kOldest = 12000;

// The library to load: `path`, else the one named by the environment, else the system's.
std::string library_named(const std::string& path) {
  if (!path.empty()) return path;
  const char* named = std::getenv("FAIRWAY_CUDA_DRIVER");
  return named != nullptr && *named != '\0' ? named : "libcuda.so.1";
}

Status none(const std::string& why) {
  return {ErrorCode::unsupported, "no CUDA: " + why};
}

}  // namespace

Result<std::shared_ptr<const CudaDriver>> CudaDriver::open(const std::string& path) {
  const std::string library = library_named(path);
  static std::mutex mutex;  // guards the two below
  static std::weak_ptr<const CudaDriver> opened;
  static std::string opened_as;
  const std::lock_guard lock(mutex);
  if (auto known = opened.lock(); known && opened_as == library) return known;

  std::shared_ptr<CudaDriver> driver(new CudaDriver);
  driver->library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver->library_ == nullptr) return none(fmt::format("the driver's library cannot be loaded ({})", ::dlerror()));
  std::string missing;
  const auto find = [&](auto& entry, const char* name) {
    void* symbol = ::dlsym(driver->library_, name);
    if (symbol == nullptr) missing = name;
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(symbol);
  };
#define FAIRWAY_CUDA_FIND(name, arguments) find(driver->table_.name, #name);
  FAIRWAY_CUDA_ENTRIES(FAIRWAY_CUDA_FIND)
  const std::string needed = missing;
  FAIRWAY_CUDA_NEWER_ENTRIES(FAIRWAY_CUDA_FIND)  // may be missing
#undef FAIRWAY_CUDA_FIND
  if (!needed.empty())
    return none(fmt::format("{} has no {}: a driver of CUDA 12 or newer is needed", library, needed));
  const Table& cu = driver->table_;
  if (const Status status = driver->check(cu.cuInit(0), "cuInit"); !status) return none(status.message());
  if (const Status status = driver->check(cu.cuDriverGetVersion(&driver->version_), "cuDriverGetVersion"); !status)
    return none(status.message());
  if (driver->version_ < kOldest)
    return none(fmt::format("the driver speaks CUDA {}.{}, 12.0 or newer is needed", driver->version_ / 1000,
                            driver->version_ % 1000 / 10));
  if (const Status status = driver->check(cu.cuDeviceGetCount(&driver->devices_), "cuDeviceGetCount"); !status)
    return none(status.message());
  if (driver->devices_ == 0) return none("the driver shows no device (CUDA_VISIBLE_DEVICES may hide them)");
  opened = driver;
  opened_as = library;
  return std::shared_ptr<const CudaDriver>(std::move(driver));
}

std::shared_ptr<const CudaDriver> CudaDriver::in_use() {
  void* const loaded = ::dlopen(library_named({}).c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  ::dlclose(loaded);
  auto driver = open();
  return driver ? *driver : nullptr;
}

CudaDriver::CudaDriver() : pins_(std::make_unique<CudaPins>(*this)) {}

// Never unloads the driver: it may have started threads of its own.
CudaDriver::~CudaDriver() = default;

Status CudaDriver::check(int result, const std::string& what) const {
  if (result == cuda::kSuccess) return {};
  const char *name = nullptr, *words = nullptr;
  if (table_.cuGetErrorName != nullptr) table_.cuGetErrorName(result, &name);
  if (table_.cuGetErrorString != nullptr) table_.cuGetErrorString(result, &words);
  return {cuda::refused_by_capture(result) ? ErrorCode::queue_full : ErrorCode::system_error,
          fmt::format("{}: {} ({})", what, words != nullptr ? words : "unknown error",
                      name != nullptr ? name : std::to_string(result))};
}

namespace {

struct Loaded {
  std::mutex mutex;  // guards the rest, and is held while it is loaded
  cuda::Module module = nullptr;
};

// Of a context that never comes again: a later one may have the same address.
std::shared_ptr<Loaded> loaded_in(unsigned long long context, const void* image) {
  static std::mutex mutex;  // guards the table
  static auto* const table = new std::map<std::pair<unsigned long long, const void*>, std::shared_ptr<Loaded>>;
  const std::lock_guard lock(mutex);
  auto& entry = (*table)[{context, image}];
  if (!entry) entry = std::make_shared<Loaded>();
  return entry;
}

}  // namespace

int load_once(const CudaDriver& driver, cuda::Context context, const void* image, cuda::Module* module) {
  unsigned long long number = 0;
  if (const int told = driver->cuCtxGetId(context, &number); told != cuda::kSuccess) return told;
  const auto entry = loaded_in(number, image);
  const std::lock_guard lock(entry->mutex);
  if (entry->module == nullptr)
    if (const int result = driver->cuModuleLoadData(&entry->module, image); result != cuda::kSuccess) {
      entry->module = nullptr;
      return result;
    }
  *module = entry->module;
  return cuda::kSuccess;
}

}  // namespace fairway::sys
