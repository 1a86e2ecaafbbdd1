#pragma once

#include <cstdint>
#include <vector>

#include "engine/description.h"
#include "engine/transfers/transfer.h"

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

}  // namespace fairway::engine
