#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fairway/export.h"
#include "fairway/ids.h"

namespace fairway {

enum class MemoryKind : std::uint8_t { host, pinned, device, managed };
// Whether a CPU can read and write it; a device's own memory is moved by the device alone.
constexpr bool reached_by_cpu(MemoryKind kind) {
  return kind != MemoryKind::device;
}

// What peers may do with a region. Combine with |. Local use needs no permission.
enum class Access : std::uint8_t { none = 0, read = 1, write = 2, atomic = 4, all = 7 };
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool includes(Access granted, Access needed) {
  return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(needed)) == static_cast<std::uint8_t>(needed);
}

// What is known of memory beside its address. A GPU's and pinned memory is found out by asking the driver.
struct MemorySource {
  MemoryKind kind = MemoryKind::host;
  // The file whose pages it is (memfd_create, MAP_SHARED), so that peers of this host can map it and copy once; -1:
  // private, or not known. Borrowed for the call. It must be sealed against shrinking (F_SEAL_SHRINK), else it is
  // treated as private: a file cut short would end its users with SIGBUS.
  int fd = -1;
  std::uint64_t fd_offset = 0;  // of the address in the file
};

// Local memory registered for transfer. A value: copying it copies the name, not the memory. It stays valid until
// Engine::deregister returns `fenced` or the engine closes; afterwards its id is refused with `revoked`.
struct Region {
  RegionId id;
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
};

// A peer's region as this engine knows it, from Engine::import_region or lookup.
struct RemoteRegion {
  RemoteRegionId id;
  PeerId peer;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
};

// Part of a local region.
struct Slice {
  RegionId region;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A place in a remote region; the length is the local slice's.
struct RemoteAddress {
  RemoteRegionId region;
  std::uint64_t offset = 0;
};

}  // namespace fairway
