#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "engine/local_regions.h"
#include "engine/messages/message_memory.h"
#include "engine/peer_context.h"
#include "engine/remote_regions.h"

namespace fairway::engine {

// The windows of one peer's receives, as regions of its worker. Owner: the peer.
class MessageWindows final : public MessageMemory {
 public:
  struct Parts {
    LocalRegions& locals;
    RemoteRegions& remotes;
    const RegionOwner& owner;  // the peer
    // Removes a revoked window once nobody writes there; then the receive in `slot`, if it still waits, is told.
    // `kept` ends with that.
    std::function<void(RegionId window, std::uint32_t slot, std::shared_ptr<void> kept)> remove;
    std::function<bool()> direct = {};  // whether the peer should be told of receives that wait
  };
  MessageWindows(PeerContext& peer, Parts parts) : peer_(peer), parts_(std::move(parts)) {}

  Result<RegionId> open_window(const Slice& into, std::uint64_t length, std::size_t most,
                               std::vector<std::byte>& description) override;
  Result<RegionId> open_gathering(std::uint64_t length, std::size_t most, std::vector<std::byte>& description,
                                  std::byte*& memory) override;
  void close_window(RegionId window, std::uint32_t slot) override;
  RemoteRegionId import_window(Description window, Status& error) override;
  void release_window(RemoteRegionId window) override;
  [[nodiscard]] bool worth_telling() const override { return parts_.direct && parts_.direct(); }

 private:
  struct Place {
    std::byte* address = nullptr;
    MemoryKind kind = MemoryKind::host;
    RegionFile file;
    MemoryAt at;
  };
  Result<RegionId> open_at(const Place& place, std::uint64_t length, std::size_t most,
                           std::vector<std::byte>& description);

  PeerContext& peer_;
  const Parts parts_;
  std::unordered_map<std::uint32_t, std::shared_ptr<void>> gathering_;  // by window's slot: the memory
};

}  // namespace fairway::engine
