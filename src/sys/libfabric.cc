#include "sys/libfabric.h"

#include <cstdlib>
#include <mutex>
#include <type_traits>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

namespace fairway::sys {

Result<std::shared_ptr<const Libfabric>> Libfabric::open(const std::string& path) {
  std::vector<std::string> candidates;
  bool from_environment = false;
  if (!path.empty()) {
    candidates = {path};
  } else if (const char* named = std::getenv("FAIRWAY_LIBFABRIC"); named != nullptr && *named != '\0') {
    candidates = {named};
    from_environment = true;
  } else {
    candidates = {"/opt/amazon/efa/lib64/libfabric.so.1", "/opt/amazon/efa/lib/libfabric.so.1", "libfabric.so.1"};
  }
  static std::mutex mutex;  // guards the two below
  static std::shared_ptr<const Libfabric> opened;
  static std::string opened_for;
  const std::lock_guard lock(mutex);
  if (opened && opened_for == candidates.front()) return opened;

  void* handle = nullptr;
  auto library = std::make_shared<Libfabric>();
  std::string why;
  for (const std::string& each : candidates) {
    handle = ::dlopen(each.c_str(), RTLD_NOW | RTLD_LOCAL);
    library->path = each;
    if (handle != nullptr) break;
    why = ::dlerror();
  }
  if (handle == nullptr)
    return Status(
        ErrorCode::unsupported,
        fmt::format("libfabric cannot be loaded ({}): {}", why,
                    from_environment ? "FAIRWAY_LIBFABRIC names that file: set it to libfabric.so.1, or unset it"
                                     : "install libfabric1 (Debian's name), or name the file in "
                                       "FAIRWAY_LIBFABRIC"));
  std::string missing;
  // Look symbols up by version: the ones with the structures that this program was built with, which newer libraries
  // keep.
  const auto find = [&](auto*& function, const char* name, const char* since) {
    void* symbol = ::dlvsym(handle, name, since);
    if (symbol == nullptr) missing = fmt::format("{} ({})", name, since);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(library->getinfo, "fi_getinfo", "FABRIC_1.3");
  find(library->freeinfo, "fi_freeinfo", "FABRIC_1.3");
  find(library->dupinfo, "fi_dupinfo", "FABRIC_1.3");
  find(library->fabric, "fi_fabric", "FABRIC_1.1");
  find(library->strerror, "fi_strerror", "FABRIC_1.0");
  find(library->version, "fi_version", "FABRIC_1.0");
  if (!missing.empty())
    return Status(ErrorCode::unsupported,
                  fmt::format("{} has no {}: libfabric 1.17 or newer is needed", library->path, missing));
  opened = library;
  opened_for = candidates.front();
  return opened;
}

std::string Libfabric::filter_text() {
  const char* filter = std::getenv("FI_PROVIDER");
  if (filter == nullptr || *filter == '\0') return {};
  return fmt::format("FI_PROVIDER={} is set, so libfabric uses no other provider", filter);
}

}  // namespace fairway::sys
