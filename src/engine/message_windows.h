#pragma once

#include "engine/message_matcher.h"

namespace fairway::engine {

class Peer;
class Worker;

// The windows that receives of one peer lend, as regions of the worker. Owner: the peer.
class MessageWindows final : public MessageMemory {
 public:
  MessageWindows(Worker& worker, Peer& peer) : worker_(worker), peer_(peer) {}

  Result<RegionId> open_window(const Slice& into, std::uint64_t length, std::size_t most,
                               std::vector<std::byte>& description) override;
  void close_window(RegionId window, std::uint32_t slot) override;
  RemoteRegionId import_window(const Description& window, Status& error) override;
  void release_window(RemoteRegionId window) override;

 private:
  Worker& worker_;
  Peer& peer_;
};

}  // namespace fairway::engine
