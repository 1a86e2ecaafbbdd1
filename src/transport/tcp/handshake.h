#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "transport/tcp/frame.h"

// The handshake of two tcp transports, carried by control:
//
//   initiator -> acceptor   hello
//   acceptor -> initiator   offer: addresses to connect to, the session's token, the number of lanes per address
//   acceptor -> initiator   segments: the way to one of these addresses swallows longer ones than so many bytes, so
//                           the next connections to it use no longer ones
//   both directions         refused: why there will be no lane
//
// The rest goes over the lanes: the initiator connects, sends a hello with the token and gets a welcome.
namespace fairway::transport::tcp {

inline constexpr std::size_t kMaxAddresses = 16;
inline constexpr std::uint16_t kMaxLanesPerPeer = 32;
inline constexpr std::uint16_t kLeastSegment = 512;

struct Handshake {
  enum class Kind : std::uint8_t { hello = 1, offer, refused, segments } kind = Kind::hello;
  std::array<std::byte, kTokenBytes> token{};
  std::uint16_t lanes = 0;
  std::vector<std::string> addresses;  // "host:port"
  std::string reason;
  std::uint8_t address = 0;         // segments: which of the offer's
  std::uint16_t segment_bytes = 0;  // segments: at least kLeastSegment
};

std::vector<std::byte> encode(const Handshake& message);
// Errors: version_mismatch; protocol_error for anything that encode() of this version cannot have written.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

}  // namespace fairway::transport::tcp
