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

// Providers of NICs for which Fairway has no transport of its own. The transport `fabric` uses them by default.
inline constexpr std::array<std::string_view, 5> kNicProviders{"efa", "cxi", "psm3", "psm2", "opx"};

// EFA's second fabric, which libfabric lists first from 2.1 on. Its endpoints cannot reach those of the fabric `efa`,
// which every version has.
inline constexpr std::string_view kEfaDirect = "efa-direct";

// The few symbols that libfabric exports, looked up at run time; the rest of its API is called through its objects. So
// one program runs with and without libfabric, and with newer versions than it was built with. Immutable once opened.
class Libfabric {
 public:
  // Opens `path`; if empty, the file named by FAIRWAY_LIBFABRIC, else the one of the EFA installer, else the system's.
  // It is never unloaded, because providers start threads. Any thread.
  static Result<std::shared_ptr<const Libfabric>> open(const std::string& path = {});

  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                 const fi_info* hints, fi_info** info) = nullptr;
  void (*freeinfo)(fi_info*) = nullptr;
  fi_info* (*dupinfo)(const fi_info*) = nullptr;  // of null: returns an empty one
  int (*fabric)(fi_fabric_attr*, fid_fabric**, void*) = nullptr;
  const char* (*strerror)(int) = nullptr;
  std::uint32_t (*version)() = nullptr;
  std::string path;  // the path that was opened

  // How FI_PROVIDER in the environment restricts libfabric, as a sentence without its full stop; empty: not at all.
  static std::string filter_text();

  // libfabric's text for `result`, a negative return value such as -FI_EAGAIN.
  [[nodiscard]] std::string text(long result) const { return strerror(static_cast<int>(-result)); }
};

}  // namespace fairway::sys
