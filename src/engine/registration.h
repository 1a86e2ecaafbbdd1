#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/description.h"
#include "transport/transport.h"

namespace fairway::engine {

// In place of a transport's handle to a region that it does not have.
inline constexpr std::uint64_t kNotRegistered = 0;
inline constexpr std::size_t kMaxTransports = 64;  // of a worker

inline bool reaches(const transport::Transport& transport, MemoryKind kind) {
  for (const transport::Device& device : transport.devices())
    if ((device.capabilities.memory_kinds >> static_cast<unsigned>(kind) & 1) != 0) return true;
  return false;
}
// Whether peers reach a region through it by keys alone, so that a region without any is not to be had there.
inline bool needs_keys(const transport::Transport& transport) {
  for (const transport::Device& device : transport.devices())
    if (device.capabilities.needs_keys) return true;
  return false;
}

// One memory with each of a worker's transports.
struct Registration {
  std::vector<std::uint64_t> handles;                     // by transport
  std::vector<TransportKeys> keys;                        // of those that have some
  std::vector<std::pair<std::uint16_t, Status>> refused;  // transports that reach such memory, but not this
  std::uint64_t without = 0;                              // a bit for each of these
  struct Partly {
    std::uint16_t transport = 0;
    transport::DeviceIndex device = 0;
    Status why;
  };
  std::vector<Partly> partly;                              // devices that refused what others of their transport took
  std::vector<std::pair<std::uint16_t, std::string>> how;  // of transports that had a choice
  Status status;  // not ok: of no use, but what was registered is to be deregistered all the same
};

// A transport may refuse memory (a NIC what it cannot pin) as long as another one takes it, and as peers see by its
// keys that it has. Any thread.
Registration register_with(std::span<const std::unique_ptr<transport::Transport>> transports, std::uint16_t worker,
                           const transport::MemoryDescription& memory);

}  // namespace fairway::engine
