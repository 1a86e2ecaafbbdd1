#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/status.h"

// The first 64 bytes each way: all that is read of a stranger. Their layout never changes, whatever the version.
namespace fairway::control {

inline constexpr std::size_t kHelloSize = 64;
using HelloBytes = std::array<std::byte, kHelloSize>;
using Nonce = std::array<std::byte, 32>;

// Versions of the wire format that an engine speaks, both ends included.
struct VersionRange {
  std::uint16_t min = 5;  // those before were never released
  std::uint16_t max = 5;
};

// Who opened the connection; part of every proof, so that nothing said by one side can be returned as the other's.
enum class Role : std::uint8_t { dialer = 1, listener = 2 };

struct Hello {
  VersionRange versions;
  Role role = Role::dialer;
  bool keyed = false;    // a job key is set; both sides must agree, and this makes the error a helpful one
  bool no_room = false;  // of a listener: it is out of descriptors, and closes
  Nonce nonce{};         // fresh for every connection
};

HelloBytes encode(const Hello& hello);

// protocol_error for what is not a hello of a peer in role `expected`.
Result<Hello> decode_hello(std::span<const std::byte> bytes, Role expected);

// The highest version that both speak; version_mismatch naming both ranges.
Result<std::uint16_t> common_version(VersionRange ours, VersionRange theirs);

}  // namespace fairway::control
