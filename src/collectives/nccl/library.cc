#include "collectives/nccl/library.h"

#include <cstdlib>
#include <type_traits>

#include <dlfcn.h>
#include <fmt/format.h>

#include "sys/library_loading.h"

namespace fairway::collectives::nccl {
namespace {

constexpr const char* kVariable = "FAIRWAY_NCCL_LIBRARY";
constexpr const char* kUsualName = "libnccl.so.2";

Status none(const std::string& why) {
  return {ErrorCode::unsupported, "no NCCL: " + why};
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string Library::version_text() const {
  return nccl::version_text(version_);
}

Result<std::shared_ptr<const Library>> Library::open(const std::string& path) {
  std::string named = path;
  if (const char* set = std::getenv(kVariable); named.empty() && set != nullptr) named = set;
  const sys::LibraryLoading loading;
  void* const handle =
      ::dlopen(named.empty() ? kUsualName : named.c_str(), RTLD_NOW | RTLD_LOCAL | (named.empty() ? RTLD_NOLOAD : 0));
  if (handle == nullptr && named.empty())
    return none(fmt::format("nothing in this process has loaded {}: name the file in GpuOptions::nccl_library or {}",
                            kUsualName, kVariable));
  if (handle == nullptr) return none(fmt::format("{} cannot be loaded: {}", named, ::dlerror()));
  std::shared_ptr<Library> library(new Library);
  library->path_ = named.empty() ? "loaded by this process" : named;
  std::string missing;
  const auto find = [&](auto& entry, const char* name) {
    void* const symbol = ::dlsym(handle, name);
    if (symbol == nullptr) missing = name;
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(symbol);
  };
  find(library->table_.ncclGetVersion, "ncclGetVersion");
  if (!missing.empty() || library->table_.ncclGetVersion(&library->version_) != kSuccess)
    return none(fmt::format("{} does not tell its version", library->path_));
  if (library->version_ < kOldest || library->version_ >= kTooNew)
    return none(fmt::format("{} is version {}; one from {} on and before {} is needed", library->path_,
                            library->version_text(), nccl::version_text(kOldest), nccl::version_text(kTooNew)));
#define FAIRWAY_NCCL_FIND(name, arguments) find(library->table_.name, #name);
  FAIRWAY_NCCL_ENTRIES(FAIRWAY_NCCL_FIND)
#undef FAIRWAY_NCCL_FIND
  find(library->error_string_, "ncclGetErrorString");
  if (!missing.empty()) return none(fmt::format("{} has no {}", library->path_, missing));
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::check(int result, const std::string& what) const {
  if (result == kSuccess) return {};
  const char* const words = error_string_(result);
  return {ErrorCode::system_error,
          fmt::format("NCCL: {}: {} ({})", what, words != nullptr ? words : "unknown error", result)};
}

}  // namespace fairway::collectives::nccl
