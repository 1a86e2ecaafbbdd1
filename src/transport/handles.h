#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "transport/transport.h"

// How transports name memory in a Slice.
namespace fairway::transport {

// The handle of local memory is its region's id, so the region table is the only table of local memory.
constexpr std::uint64_t handle_of(RegionId id) {
  return static_cast<std::uint64_t>(id.generation) << 32 | id.slot;
}
constexpr RegionId region_of(std::uint64_t handle) {
  return {static_cast<std::uint32_t>(handle), static_cast<std::uint32_t>(handle >> 32)};
}

// The imported regions by handle, with a transport's own data for each. Owner: the transport's worker.
template <class Extra = std::monostate>
class ImportTable {
 public:
  struct Entry {
    std::uint32_t generation = 0;
    bool live = false;
    PeerIndex peer = 0;
    RegionId region;
    Extra extra;
  };

  std::uint64_t add(PeerIndex peer, RegionId region, Extra extra = {}) {
    auto slot = static_cast<std::uint32_t>(entries_.size());
    if (free_.empty()) {
      entries_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    Entry& entry = entries_[slot];
    entry = {entry.generation + 1, true, peer, region, std::move(extra)};
    return handle_of({slot, entry.generation});
  }
  // Null: no such handle, released, or of another peer.
  Entry* find(std::uint64_t handle, PeerIndex peer) {
    const RegionId id = region_of(handle);
    if (id.slot >= entries_.size()) return nullptr;
    Entry& entry = entries_[id.slot];
    return entry.live && entry.generation == id.generation && entry.peer == peer ? &entry : nullptr;
  }
  const Entry* find(std::uint64_t handle) const {
    const RegionId id = region_of(handle);
    const bool live =
        id.slot < entries_.size() && entries_[id.slot].live && entries_[id.slot].generation == id.generation;
    return live ? &entries_[id.slot] : nullptr;
  }
  void release(std::uint64_t handle) {
    if (find(handle) != nullptr) drop(region_of(handle).slot);
  }
  void release_all(PeerIndex peer) {
    for (std::uint32_t slot = 0; slot < entries_.size(); ++slot)
      if (entries_[slot].live && entries_[slot].peer == peer) drop(slot);
  }
  template <class Visit>
  void each(PeerIndex peer, Visit visit) {
    for (std::uint32_t slot = 0; slot < entries_.size(); ++slot)
      if (Entry& entry = entries_[slot]; entry.live && entry.peer == peer) visit(entry);
  }

 private:
  void drop(std::uint32_t slot) {
    entries_[slot].live = false;
    entries_[slot].extra = {};
    free_.push_back(slot);
  }
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

}  // namespace fairway::transport
