#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fairway/export.h"
#include "fairway/ids.h"

namespace fairway {

enum class MemoryKind : std::uint8_t { host, pinned, device, managed };
// Whether a CPU can read and write it. Device memory is accessed by the device only.
constexpr bool reached_by_cpu(MemoryKind kind) {
  return kind != MemoryKind::device;
}

// What peers may do with a region; combine with |. Local use needs no permission.
enum class Access : std::uint8_t { none = 0, read = 1, write = 2, atomic = 4, all = 7 };
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool includes(Access granted, Access needed) {
  return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(needed)) == static_cast<std::uint8_t>(needed);
}

// Facts about memory that its address does not tell. The driver is asked whether it is pinned or a GPU's.
struct MemorySource {
  MemoryKind kind = MemoryKind::host;
  // The file that backs the memory (memfd_create, MAP_SHARED), so that peers on this host can map it: one copy instead
  // of two. -1: private or unknown. Borrowed for the call. Seal it with F_SEAL_SHRINK, else it is treated as private:
  // processes that use a truncated file get SIGBUS.
  int fd = -1;
  std::uint64_t fd_offset = 0;  // of the address in the file
};

// Registered local memory. A handle: copying it does not copy the memory. Valid until Engine::deregister returns ok or
// the engine closes; after that its id is refused with `revoked`.
struct Region {
  RegionId id;
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
};

// A peer's region, from Engine::import_region or Engine::lookup.
struct RemoteRegion {
  RemoteRegionId id;
  PeerId peer;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
};

// Part of a local region.
struct Slice {
  RegionId region = {};
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A position in a remote region. The length is that of the local slice.
struct RemoteAddress {
  RemoteRegionId region = {};
  std::uint64_t offset = 0;
};

}  // namespace fairway
