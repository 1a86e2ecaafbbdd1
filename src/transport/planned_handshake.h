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

// What two transports whose links are planned (planned_links.h) say to each other through control. Devices and ends are
// bytes of the transport's own.
//
//   initiator -> acceptor   hello: its devices, a token of this session
//   acceptor -> initiator   plan: which of its devices meets which of the initiator's, one link for each; its devices
// and for each link, at first and whenever it comes back:
//   initiator -> acceptor   open: its end, which takes nothing yet
//   acceptor -> initiator   accept: its end, which does
//   initiator -> acceptor   ready: both do
//   either way              closed: this end of that attempt is gone, and why where it never was up
//   either way              refused: why there will be no link
//   either way              note: anything that the transport has to say besides
namespace fairway::transport {

inline constexpr std::size_t kPlanTokenBytes = 16;
inline constexpr std::size_t kMaxPlannedLinks = 32;
inline constexpr std::size_t kMaxPlannedDevices = 64;
inline constexpr std::uint32_t kMaxPlannedAttempts = 1 << 24;
inline constexpr std::size_t kMaxPlannedBytes = 8 * 1024;  // of devices, of an end, of a note

struct PlannedPair {  // places in the lists of devices
  std::uint8_t initiator = 0, acceptor = 0;
  bool operator==(const PlannedPair&) const = default;
};

struct PlannedHandshake {
  enum class Kind : std::uint8_t { hello = 1, plan, open, accept, ready, closed, refused, note } kind = Kind::hello;
  std::array<std::byte, kPlanTokenBytes> token{};  // all but refused
  std::vector<PlannedPair> pairs;                  // plan
  std::uint16_t link = 0;                          // open to closed
  std::uint32_t attempt = 0;                       // of that link; grows, from 1
  std::vector<std::byte> bytes;                    // hello, plan: devices; open, accept: an end; note
  std::string reason;                              // refused, closed
};

std::vector<std::byte> encode(const PlannedHandshake& message, std::uint16_t version);
// version_mismatch, or protocol_error for anything that encode() of this version cannot have written; `name` is the
// transport's, for the words.
Result<PlannedHandshake> decode_planned(std::span<const std::byte> bytes, std::uint16_t version, std::string_view name);

}  // namespace fairway::transport
