#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/planned_handshake.h"

// What is decided about ports before anything is opened: which address one uses, which two belong together, how fast
// one is. Pure.
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

// "0 fe80:..., 1 10.0.0.1", for people.
std::string text_of(std::span<const GidEntry> entries);

// Where a port can be reached; what the two sides tell each other.
struct PortAddress {
  Fabric fabric = Fabric::roce;
  Gid gid{};
  std::uint16_t lid = 0;         // InfiniBand
  std::uint8_t queue_pairs = 1;  // that this side wants to each port of a peer
  bool manager = false;          // its queue pairs are connected by rdma_cm: iWARP's always
  bool plain = false;            // sends and writes carry no immediates: iWARP's
  std::uint16_t listens_at = 0;  // for rdma_cm; 0: it does not
  bool operator==(const PortAddress&) const = default;
};

// The entry that others shall reach this port by. InfiniBand: the first. RoCE: version 2 (which routers forward) and an
// address that has a meaning beyond its own wire: IPv4, then global IPv6, then a site's own (fd00::/8). Nothing where
// only link-local ones are.
// iWARP: likewise, of the addresses of its interface. Of equals, the one that it had before.
std::optional<GidEntry> choose_gid(Fabric fabric, std::span<const GidEntry> entries, const Gid& had = {});

// Either side may want rdma_cm.
inline bool by_manager(const PortAddress& a, const PortAddress& b) {
  return a.manager || b.manager;
}

bool can_meet(const PortAddress& a, const PortAddress& b);
// Each port meets one at most: ports of one fabric and, of those, those whose addresses agree in more leading bits
// first, so that NICs of one subnet (a rail) meet. A pair is there once for each of its queue pairs: as many as the
// side wants that wants more, while there is room for all pairs.
std::vector<PlannedPair> pair_ports(std::span<const PortAddress> acceptors, std::span<const PortAddress> initiators);

// Of data, as the port's active speed and width say; 0: not known.
std::uint64_t bytes_per_second(std::uint8_t speed, std::uint8_t width);

// "10.0.0.1", "fd00::1" written out, or an InfiniBand GID.
std::string text_of(const PortAddress& address);

}  // namespace fairway::transport::verbs
