#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fairway/status.h"

struct fi_info;
struct fi_fabric_attr;
struct fid_fabric;

namespace fairway::sys {

// Providers of NICs that Fairway has no transport of its own for: what the transport `fabric` uses without being told
// to.
inline constexpr std::array<std::string_view, 5> kNicProviders{"efa", "cxi", "psm3", "psm2", "opx"};

// EFA's other fabric, which libfabric lists first from 2.1 on. Its ends and those of the fabric `efa`, which every
// version has, do not hear each other.
inline constexpr std::string_view kEfaDirect = "efa-direct";

// libfabric's few real functions, found at run time; the rest of it is called through the objects that these give. So
// one program serves machines with and without it, and a newer one than it was built with. Immutable once opened.
class Libfabric {
 public:
  // The library at `path`; empty: what the environment's FAIRWAY_LIBFABRIC names, else the one of EFA's installer, else
  // the system's. Once opened it stays, as its providers start threads. Any thread.
  static Result<std::shared_ptr<const Libfabric>> open(const std::string& path = {});

  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                 const fi_info* hints, fi_info** info) = nullptr;
  void (*freeinfo)(fi_info*) = nullptr;
  fi_info* (*dupinfo)(const fi_info*) = nullptr;  // of null: an empty one
  int (*fabric)(fi_fabric_attr*, fid_fabric**, void*) = nullptr;
  const char* (*strerror)(int) = nullptr;
  std::uint32_t (*version)() = nullptr;
  std::string path;  // as it was opened

  // What the environment's FI_PROVIDER leaves of libfabric, as a sentence without its end; empty: all of it.
  static std::string filter_text();

  // "FI_EAGAIN's words"; `result` as libfabric returns it, less than 0.
  [[nodiscard]] std::string text(long result) const { return strerror(static_cast<int>(-result)); }
};

}  // namespace fairway::sys
