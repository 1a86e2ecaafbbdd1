#pragma once

#include <compare>
#include <cstdint>

namespace fairway {

// One session with one incarnation (process life) of a peer. A peer that restarted or was declared dead gets a new
// PeerId; the old one keeps returning `stale_incarnation` or `peer_dead`.
struct PeerId {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // 0: no peer
  explicit operator bool() const { return generation != 0; }
  auto operator<=>(const PeerId&) const = default;
};

// One accepted transfer of this engine. Never reused within 2^32 transfers of its slot.
struct TransferId {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // 0: no transfer
  explicit operator bool() const { return generation != 0; }
  auto operator<=>(const TransferId&) const = default;
};

// Local memory registered with this engine.
struct RegionId {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // 0: no region
  explicit operator bool() const { return generation != 0; }
  auto operator<=>(const RegionId&) const = default;
};

// A peer's region, imported into this engine. Valid for the PeerId it was imported from.
struct RemoteRegionId {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // 0: no region
  explicit operator bool() const { return generation != 0; }
  auto operator<=>(const RemoteRegionId&) const = default;
};

// A region that kernels of this process can access, from Engine::map. Ids are never reused.
struct MappingId {
  std::uint64_t number = 0;  // 0: none
  explicit operator bool() const { return number != 0; }
  auto operator<=>(const MappingId&) const = default;
};

}  // namespace fairway
