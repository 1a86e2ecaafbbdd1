#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

#include "transport/device.h"

// Memory as the transport contract (transport.h) speaks of it.
namespace fairway::transport {

struct MemoryDescription {
  RegionId id;
  std::byte* address = nullptr;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  int dmabuf_fd = -1;  // borrowed for the call
  std::uint64_t dmabuf_offset = 0;
  Access access = Access::none;
  int memory_fd = -1;  // shared pages behind host memory (memfd), borrowed for the call; -1: private, or not known
  std::uint64_t memory_offset = 0;  // of `address` in that file
};
// Whose memory an address lies in, as a machine's model names it.
struct MemoryPlace {
  MemoryKind kind = MemoryKind::host;
  std::string gpu;  // the PCI address of the GPU that has it; empty: none has, or which is unknown
};
struct RegisteredMemory {
  std::uint64_t handle = 0;  // given back in Slice::local_handle
  // One per device, for peers; one without bytes: that device has it not. None: the RegionId suffices.
  std::vector<std::vector<std::byte>> keys;
  std::string how = {};                                      // for people, where there was a choice
  std::vector<std::pair<DeviceIndex, Status>> refused = {};  // by devices, where others took it
};
struct RemoteMemory {  // what import() gets: the peer's own facts, already authenticated, never trusted for bounds
  RegionId id;
  std::uint64_t size_bytes = 0;
  Access access = Access::none;
};

}  // namespace fairway::transport
