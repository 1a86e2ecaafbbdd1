#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "transport/verbs/choice.h"

// What two verbs transports say to each other through control; docs/wire-format-verbs.md has the bytes.
//
//   initiator -> acceptor   hello: its ports, a token of this session
//   acceptor -> initiator   plan: which of its ports meets which of the initiator's, one link for each
// and for each link, at first and whenever it comes back:
//   initiator -> acceptor   open: its queue pair, which does not listen yet
//   acceptor -> initiator   accept: its queue pair, which does
//   initiator -> acceptor   ready: both do
//   either way              closed: this end's queue pair of that attempt is gone
//   either way              refused: why there will be no link
namespace fairway::transport::verbs {

inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kTokenBytes = 16;
inline constexpr std::size_t kMaxLinksPerPeer = kMaxQueuePairs;
inline constexpr std::uint32_t kMaxAttempts = 1 << 24;
inline constexpr std::uint16_t kLeastReceives = 4, kMostReceives = 4096;

// One end's queue pair of one attempt.
struct Endpoint {
  std::uint32_t number = 0;  // of the queue pair
  std::uint32_t first_psn = 0;
  std::uint8_t mtu = 1;        // as the ABI counts: 1 is 256 bytes, 5 is 4096
  std::uint8_t reads = 1;      // that it answers at once
  std::uint16_t receives = 0;  // messages and immediates that it takes before it says that there is room again
  std::uint64_t word = 0;      // eight bytes that may be read, to learn that what was written before is in place
  std::uint32_t word_key = 0;
  bool operator==(const Endpoint&) const = default;
};

struct PlannedLink {
  std::uint8_t initiator_port = 0;  // its place in hello
  std::uint8_t acceptor_port = 0;   // its place among the acceptor's devices
  PortAddress address;              // the acceptor's
  bool operator==(const PlannedLink&) const = default;
};

struct Handshake {
  enum class Kind : std::uint8_t { hello = 1, plan, open, accept, ready, closed, refused } kind = Kind::hello;
  std::array<std::byte, kTokenBytes> token{};  // all but refused
  std::vector<PortAddress> ports;              // hello
  std::vector<PlannedLink> links;              // plan
  std::uint16_t link = 0;                      // open to closed
  std::uint32_t attempt = 0;                   // of that link; grows, from 1
  Endpoint endpoint;                           // open, accept
  std::string reason;                          // refused
};

std::vector<std::byte> encode(const Handshake& message);
// version_mismatch, or protocol_error for anything that encode() of this version cannot have written.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

}  // namespace fairway::transport::verbs
