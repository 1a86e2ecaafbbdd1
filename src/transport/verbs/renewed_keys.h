#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/memory.h"

// Keys of regions that changed after their description was sent, because a port of the owner recovered.
namespace fairway::transport::verbs {

// The note (planned_handshake.h): new keys of one port of the sender, at most kRenewedInNote.
inline constexpr std::size_t kRenewedInNote = 200;
std::vector<std::byte> encode_renewed(std::size_t port, std::span<const RenewedKey> keys);
// Error: protocol_error for anything that encode_renewed() of this version cannot have written.
Result<std::vector<RenewedKey>> decode_renewed(std::span<const std::byte> bytes, std::size_t& port);

// The renewed keys that peers sent, for regions that are imported now or later. Owner: the transport's worker.
class RenewedKeys {
 public:
  static constexpr std::size_t kMostRegions = 1 << 16;  // of one peer

  // False: the peer has sent keys of more than kMostRegions regions.
  [[nodiscard]] bool keep(PeerIndex peer, std::size_t port, std::span<const RenewedKey> keys);
  struct AtPort {
    std::size_t port = 0;
    Key key;
  };
  [[nodiscard]] std::span<const AtPort> of(PeerIndex peer, RegionId region) const;
  void forget(PeerIndex peer) { peers_.erase(peer); }

 private:
  struct Region {
    std::uint32_t generation = 0;
    std::vector<AtPort> keys;
  };
  std::unordered_map<PeerIndex, std::unordered_map<std::uint32_t, Region>> peers_;  // by slot: its latest region
};

}  // namespace fairway::transport::verbs
