#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairway/status.h"

// The handshake of transports whose links are planned (planned_links.h), carried by control. Each transport encodes its
// own devices and ends (queue pairs, endpoints) as bytes.
//
//   initiator -> acceptor   hello: its devices, a token of this session
//   acceptor -> initiator   plan: the pairs of devices to connect, one link for each; its devices
// For each link, at first and at each reconnect:
//   initiator -> acceptor   open: its end, not connected yet
//   acceptor -> initiator   accept: its end, connected
//   initiator -> acceptor   ready: both ends are connected
//   both directions         closed: this end of the attempt is closed, with the reason if it was never up
//   both directions         refused: why there will be no link
//   both directions         note: any other message of the transport
namespace fairway::transport {

inline constexpr std::size_t kPlanTokenBytes = 16;
inline constexpr std::size_t kMaxPlannedLinks = 32;
inline constexpr std::size_t kMaxPlannedDevices = 64;
inline constexpr std::uint32_t kMaxPlannedAttempts = 1 << 24;
inline constexpr std::size_t kMaxPlannedBytes = 8 * 1024;  // of devices, of an end, of a note

struct PlannedPair {  // indices into the lists of devices
  std::uint8_t initiator = 0, acceptor = 0;
  bool operator==(const PlannedPair&) const = default;
};

struct PlannedHandshake {
  enum class Kind : std::uint8_t { hello = 1, plan, open, accept, ready, closed, refused, note } kind = Kind::hello;
  std::array<std::byte, kPlanTokenBytes> token{};  // all but refused
  std::vector<PlannedPair> pairs;                  // plan
  std::uint16_t link = 0;                          // open to closed
  std::uint32_t attempt = 0;                       // of that link; counts from 1
  std::vector<std::byte> bytes;                    // hello, plan: devices; open, accept: an end; note
  std::string reason;                              // refused, closed
};

std::vector<std::byte> encode(const PlannedHandshake& message, std::uint16_t version);
// Errors: version_mismatch; protocol_error for anything that encode() of this version cannot have written. `name` is
// the transport's, for error texts.
Result<PlannedHandshake> decode_planned(std::span<const std::byte> bytes, std::uint16_t version, std::string_view name);

}  // namespace fairway::transport
