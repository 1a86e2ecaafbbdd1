#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/status.h"

// The handshake of two loopback transports, carried by control:
//
//   initiator -> acceptor   hello: its fabric, its number of devices
//   acceptor -> initiator   offer: one for each link: `index` of `links`, attempt n, the id `offer` to attach it under
//   initiator -> acceptor   attached: link `index`, attempt n is in use
//   both directions         refused: why there will be no link
//
// A broken link is reconnected by a new offer, once both sides have fenced it and want it again.
namespace fairway::transport::loopback {

inline constexpr std::uint16_t kHandshakeVersion = 1;
inline constexpr std::size_t kHandshakeBytes = 36;
inline constexpr std::uint16_t kMaxLinksPerPeer = 64;

struct Handshake {
  enum class Kind : std::uint8_t { hello = 1, offer, attached, refused } kind = Kind::hello;
  std::uint64_t fabric = 0;
  std::uint64_t offer = 0;
  std::uint32_t attempt = 0;
  std::uint16_t devices = 0;
  std::uint16_t index = 0;
  std::uint16_t links = 0;
  ErrorCode reason = ErrorCode::ok;
};

std::array<std::byte, kHandshakeBytes> encode(const Handshake& message);
// Errors: version_mismatch; protocol_error for anything that encode() of this version cannot have written.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

}  // namespace fairway::transport::loopback
