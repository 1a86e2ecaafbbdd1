#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "fairway/status.h"

#include "transport/transport.h"
#include "transport/verbs/choice.h"
#include "transport/verbs/memory.h"

// The payloads of verbs in the messages of planned_handshake.h: ports (devices) and queue pairs (ends). See
// docs/wire-format-verbs.md.
namespace fairway::transport::verbs {

inline constexpr std::uint16_t kVersion = 8;
inline constexpr std::uint16_t kLeastReceives = 4, kMostReceives = 4096;

// A random value that authenticates one end of one attempt to the other through rdma_cm.
using Secret = std::array<std::byte, 16>;

// The queue pair of one end of one attempt.
struct Endpoint {
  PortAddress port;
  std::uint32_t number = 0;  // of the queue pair
  std::uint32_t first_psn = 0;
  std::uint8_t mtu = 1;        // ibv_mtu: 1 is 256 bytes, 5 is 4096
  std::uint8_t reads = 1;      // that it answers at once (max_dest_rd_atomic)
  std::uint16_t receives = 0;  // initial credits: messages and immediates that it can receive
  std::uint64_t word = 0;      // eight bytes that the peer reads to flush its earlier writes
  std::uint32_t word_key = 0;
  Secret secret{};  // what the peer must send to this end through rdma_cm
  bool operator==(const Endpoint&) const = default;
};

// Decoding fails with protocol_error for anything that encode() of this version cannot have written.
std::vector<std::byte> encode(std::span<const PortAddress> ports);
Result<std::vector<PortAddress>> decode_ports(std::span<const std::byte> bytes);
std::vector<std::byte> encode(const Endpoint& endpoint);
Result<Endpoint> decode_endpoint(std::span<const std::byte> bytes);

// Keys of regions that changed after their description was sent, because a port of the owner recovered.

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
