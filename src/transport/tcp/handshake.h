#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "transport/tcp/frame.h"

// What two tcp transports say to each other through control before there is a lane:
//
//   initiator -> acceptor   hello
//   acceptor -> initiator   offer: where to dial, the session's token, how many lanes to each address
//   either way              refused: why there will be no lane
//
// Everything else is said on the lanes: the initiator dials, says its hello with the token, and is welcomed.
namespace fairway::transport::tcp {

inline constexpr std::size_t kMaxAddresses = 16;
inline constexpr std::uint16_t kMaxLanesPerPeer = 32;

struct Handshake {
  enum class Kind : std::uint8_t { hello = 1, offer, refused } kind = Kind::hello;
  std::array<std::byte, kTokenBytes> token{};
  std::uint16_t lanes = 0;
  std::vector<std::string> addresses;  // "host:port"
  std::string reason;
};

std::vector<std::byte> encode(const Handshake& message);
// version_mismatch, or protocol_error for anything that encode() of this version cannot have written.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

}  // namespace fairway::transport::tcp
