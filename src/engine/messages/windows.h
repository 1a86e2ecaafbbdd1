#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/links/link_set.h"
#include "engine/tables/peer_context.h"
#include "engine/tables/regions.h"
#include "engine/tables/transfer.h"

namespace fairway::engine {

// Memory for the rendezvous: a receive opens a window, a temporary region of exactly its bytes that this peer alone may
// write.
class MessageMemory {
 public:
  // Its description is what the peer gets, no longer than `most` bytes.
  virtual Result<RegionId> open_window(const Slice& into, std::uint64_t length, std::size_t most,
                                       std::vector<std::byte>& description) = 0;
  // The same on memory of the engine's own, which `memory` names, for a receive that copies its pieces from there. It
  // stays until nothing can land in the window any more.
  virtual Result<RegionId> open_gathering(std::uint64_t length, std::size_t most, std::vector<std::byte>& description,
                                          std::byte*& memory) = 0;
  // Revokes the window. MessageMatcher::window_closed(slot) follows once nothing can land in it any more; kNoSlot:
  // nobody waits.
  virtual void close_window(RegionId window, std::uint32_t slot) = 0;
  virtual RemoteRegionId import_window(Description window, Status& error) = 0;
  virtual void release_window(RemoteRegionId window) = 0;
  // Whether to tell the peer of windows before there is a message for them.
  [[nodiscard]] virtual bool worth_telling() const { return false; }

 protected:
  ~MessageMemory() = default;
};

// The windows of one peer's receives, as regions of its worker. Owner: the peer.
class MessageWindows final : public MessageMemory {
 public:
  MessageWindows(PeerContext& peer, const LinkSet& links) : peer_(peer), links_(links) {}

  Result<RegionId> open_window(const Slice& into, std::uint64_t length, std::size_t most,
                               std::vector<std::byte>& description) override;
  Result<RegionId> open_gathering(std::uint64_t length, std::size_t most, std::vector<std::byte>& description,
                                  std::byte*& memory) override;
  void close_window(RegionId window, std::uint32_t slot) override;
  RemoteRegionId import_window(Description window, Status& error) override;
  void release_window(RemoteRegionId window) override;
  [[nodiscard]] bool worth_telling() const override { return links_.take_messages_directly(); }

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
  const LinkSet& links_;
  std::unordered_map<std::uint32_t, std::shared_ptr<void>> gathering_;  // by window's slot: the memory
};

}  // namespace fairway::engine
