#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/memory.h"

// Keys of regions that changed after peers were told of the regions, as a port of theirs came back.
namespace fairway::transport::verbs {

// A note (planned_handshake.h): keys at one port of who says it, at most kRenewedInNote of them.
inline constexpr std::size_t kRenewedInNote = 200;
std::vector<std::byte> encode_renewed(std::size_t port, std::span<const RenewedKey> keys);
// protocol_error for anything that encode_renewed() of this version cannot have written.
Result<std::vector<RenewedKey>> decode_renewed(std::span<const std::byte> bytes, std::size_t& port);

// What peers said so, for regions of theirs that are imported by now or later. Belongs to the transport's worker.
class RenewedKeys {
 public:
  static constexpr std::size_t kMostRegions = 1 << 16;  // of one peer

  // False: it has said so of more than kMostRegions regions.
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
  std::unordered_map<PeerIndex, std::unordered_map<std::uint32_t, Region>> peers_;  // by slot: the latest region there
};

}  // namespace fairway::transport::verbs
