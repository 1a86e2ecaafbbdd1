#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fairway/status.h"

#include "transport/verbs/choice.h"

// What verbs puts into the messages of planned_handshake.h: its ports, as devices, and queue pairs, as ends.
// docs/wire-format-verbs.md has the bytes.
namespace fairway::transport::verbs {

inline constexpr std::uint16_t kVersion = 7;
inline constexpr std::uint16_t kLeastReceives = 4, kMostReceives = 4096;

// What who connects by rdma_cm says of itself: random, of one end of one attempt.
using Secret = std::array<std::byte, 16>;

// One end's queue pair of one attempt.
struct Endpoint {
  PortAddress port;
  std::uint32_t number = 0;  // of the queue pair
  std::uint32_t first_psn = 0;
  std::uint8_t mtu = 1;        // as the ABI counts: 1 is 256 bytes, 5 is 4096
  std::uint8_t reads = 1;      // that it answers at once
  std::uint16_t receives = 0;  // messages and immediates that it takes before it says that there is room again
  std::uint64_t word = 0;      // eight bytes that may be read, to learn that what was written before is in place
  std::uint32_t word_key = 0;
  Secret secret{};  // by which rdma_cm's caller, or its answer, is known to be the peer
  bool operator==(const Endpoint&) const = default;
};

// Decoding ends in protocol_error for anything that encode() of this version cannot have written.
std::vector<std::byte> encode(std::span<const PortAddress> ports);
Result<std::vector<PortAddress>> decode_ports(std::span<const std::byte> bytes);
std::vector<std::byte> encode(const Endpoint& endpoint);
Result<Endpoint> decode_endpoint(std::span<const std::byte> bytes);

}  // namespace fairway::transport::verbs
