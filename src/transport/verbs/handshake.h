#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fairway/status.h"

#include "transport/verbs/choice.h"

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

}  // namespace fairway::transport::verbs
