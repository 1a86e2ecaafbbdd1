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
// Whether peers need keys to reach a region through this transport; then a region without keys is not reachable there.
inline bool needs_keys(const transport::Transport& transport) {
  for (const transport::Device& device : transport.devices())
    if (device.capabilities.needs_keys) return true;
  return false;
}

// One memory's registrations with all transports of a worker.
struct Registration {
  std::vector<std::uint64_t> handles;                     // by transport
  std::vector<TransportKeys> keys;                        // of those that have some
  std::vector<std::pair<std::uint16_t, Status>> refused;  // transports that reach such memory, but not this
  std::uint64_t without = 0;                              // a bit for each of these
  std::uint64_t partly = 0;                               // a bit for each of which some devices refused it, not all
  Status status;  // not ok: of no use, but what was registered is to be deregistered all the same
};

// Registers memory with every transport. A transport may refuse it (a NIC what it cannot pin) if another one takes it,
// and if the missing keys tell peers so. Any thread.
Registration register_with(std::span<const std::unique_ptr<transport::Transport>> transports, std::uint16_t worker,
                           const Region& memory, const MemorySource& source);

}  // namespace fairway::engine
