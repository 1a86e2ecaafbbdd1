#include "sys/cuda_modules.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace fairway::sys {
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
