#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/status.h"

// The first 64 bytes in each direction, and all that is read from a peer before it proves the key. Their layout is the
// same in every version.
namespace fairway::control {

inline constexpr std::size_t kHelloSize = 64;
using HelloBytes = std::array<std::byte, kHelloSize>;
using Nonce = std::array<std::byte, 32>;

// Versions of the wire format that an engine speaks, both ends included.
struct VersionRange {
  std::uint16_t min = 7;  // earlier versions were never released
  std::uint16_t max = 7;
};

// Who opened the connection. Every proof covers it, so that one side's message cannot be replayed as the other's.
enum class Role : std::uint8_t { dialer = 1, listener = 2 };

struct Hello {
  VersionRange versions;
  Role role = Role::dialer;
  bool keyed = false;    // a job key is set. Both sides must agree; sent so that the error can name the cause
  bool no_room = false;  // from a listener: it is out of file descriptors and closes the connection
  Nonce nonce{};         // new for every connection
};

HelloBytes encode(const Hello& hello);

// Error: protocol_error when the bytes are not a hello from a peer in role `expected`.
Result<Hello> decode_hello(std::span<const std::byte> bytes, Role expected);

// The highest version that both sides speak. Error: version_mismatch, naming both ranges.
Result<std::uint16_t> common_version(VersionRange ours, VersionRange theirs);

}  // namespace fairway::control
