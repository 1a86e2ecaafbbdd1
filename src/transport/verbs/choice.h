#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/planned_handshake.h"

// Decisions about ports that need no open device: a port's address, which ports to connect, a port's rate. Pure.
namespace fairway::transport::verbs {

inline constexpr std::size_t kMaxPorts = 16;                       // of one side
inline constexpr std::uint32_t kMaxQueuePairs = kMaxPlannedLinks;  // to one port

using Gid = std::array<std::byte, 16>;

enum class Fabric : std::uint8_t { infiniband = 1, roce = 2, iwarp = 3 };

inline constexpr std::uint32_t kIwarpGid = 255;
struct GidEntry {
  Gid gid{};
  std::uint32_t index = 0;
  std::uint32_t type = 0;  // as abi::Gid has it, or kIwarpGid
};

// For people: "0 fe80:..., 1 10.0.0.1".
std::string text_of(std::span<const GidEntry> entries);

// The address of a port and how it connects, as the two sides exchange it.
struct PortAddress {
  Fabric fabric = Fabric::roce;
  Gid gid{};
  std::uint16_t lid = 0;         // InfiniBand
  std::uint8_t queue_pairs = 1;  // wanted to each port of a peer
  bool uses_cm = false;          // connects queue pairs by rdma_cm; always for iWARP
  bool no_immediates = false;    // sends and writes carry no immediate data; always for iWARP
  std::uint16_t cm_port = 0;     // TCP port at which rdma_cm listens; 0: none
  bool global = false;           // InfiniBand: packets to and from it need a global routing header
  bool operator==(const PortAddress&) const = default;
};

// Chooses the GID for this port. InfiniBand: the first. RoCE: a RoCE v2 entry (which routers forward) with a routable
// address: IPv4, then global IPv6, then unique local (fd00::/8); nothing if all are link-local. iWARP: the same among
// its interface's addresses. Among equals it keeps `had`.
std::optional<GidEntry> choose_gid(Fabric fabric, std::span<const GidEntry> entries, const Gid& had = {});

// Whether to connect by rdma_cm: if either side wants it.
inline bool wants_cm(const PortAddress& a, const PortAddress& b) {
  return a.uses_cm || b.uses_cm;
}

bool can_connect(const PortAddress& a, const PortAddress& b);
// Pairs ports of the same fabric, each with one port at most, longest common address prefix first, so that NICs of one
// subnet (a rail) are connected. A pair is listed once per queue pair: the larger number of the two sides, as far as
// kMaxPlannedLinks allows.
std::vector<PlannedPair> pair_ports(std::span<const PortAddress> acceptors, std::span<const PortAddress> initiators);

// The data rate of a port's active speed and width; 0: unknown.
std::uint64_t bytes_per_second(std::uint8_t speed, std::uint8_t width);

// For people: an IPv4 address, or an IPv6 address or InfiniBand GID in full.
std::string text_of(const PortAddress& address);

}  // namespace fairway::transport::verbs
