#pragma once

#include <compare>
#include <cstdint>

namespace fairway {

// What ids are made of: a place of the engine's and who has it, or a number. Zeros: none.
template <class What>
struct SlotId {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  explicit operator bool() const { return generation != 0; }
  auto operator<=>(const SlotId&) const = default;
};
template <class What>
struct NumberId {
  std::uint64_t number = 0;
  explicit operator bool() const { return number != 0; }
  auto operator<=>(const NumberId&) const = default;
};

// One session with one incarnation (process life) of a peer. A peer that restarted or was declared dead gets a new
// PeerId; the old one keeps returning `stale_incarnation` or `peer_dead`.
using PeerId = SlotId<struct PeerOfId>;
// One accepted transfer of this engine. Never reused within 2^32 transfers of its slot.
using TransferId = SlotId<struct TransferOfId>;
// Local memory registered with this engine.
using RegionId = SlotId<struct RegionOfId>;
// A peer's region, imported into this engine. Valid for the PeerId it was imported from.
using RemoteRegionId = SlotId<struct RemoteRegionOfId>;
// A completion queue, from Engine::make_queue, and a range of immediates, from Engine::make_counters.
using QueueId = SlotId<struct QueueOfId>;
using CounterSpaceId = SlotId<struct CounterSpaceOfId>;
// A region that kernels of this process can access, from Engine::map. Ids are never reused.
using MappingId = NumberId<struct MappingOfId>;

}  // namespace fairway
