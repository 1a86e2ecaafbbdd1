#include "transport/verbs/choice.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "transport/verbs/verbs.h"

namespace fairway::transport::verbs {
namespace {

constexpr std::uint32_t kInfiniband = 0;
constexpr std::uint32_t kRoceV2 = 2;

unsigned at(const Gid& gid, std::size_t i) {
  return std::to_integer<unsigned>(gid[i]);
}

bool is_ipv4(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::byte each) { return each == std::byte{0}; }) &&
         at(gid, 10) == 0xff && at(gid, 11) == 0xff;
}

// Preference of an address: 3 IPv4, 2 global IPv6, 1 unique local IPv6, 0 not routable.
int reach(const Gid& gid) {
  if (is_ipv4(gid)) {
    const bool nothing = at(gid, 12) == 0 || at(gid, 12) == 127 || at(gid, 12) >= 224;
    const bool link_local = at(gid, 12) == 169 && at(gid, 13) == 254;
    return nothing || link_local ? 0 : 3;
  }
  if ((at(gid, 0) & 0xe0) == 0x20) return 2;  // 2000::/3, what is assigned globally
  if ((at(gid, 0) & 0xfe) == 0xfc) return 1;  // fc00::/7, a site's own
  return 0;
}

// Common leading bits; -1: they cannot connect.
int nearness(const PortAddress& a, const PortAddress& b) {
  if (a.fabric != b.fabric) return -1;
  if (a.fabric != Fabric::infiniband && is_ipv4(a.gid) != is_ipv4(b.gid)) return -1;
  int bits = 0;
  for (std::size_t i = 0; i < a.gid.size(); ++i) {
    const auto differs = static_cast<std::uint8_t>(at(a.gid, i) ^ at(b.gid, i));
    bits += std::countl_zero(differs);
    if (differs != 0) break;
  }
  return a.fabric == Fabric::infiniband && bits < 64 ? -1 : bits;  // below 64: different subnets
}

}  // namespace

std::optional<GidEntry> choose_gid(Fabric fabric, std::span<const GidEntry> entries, const Gid& had) {
  std::optional<GidEntry> best;
  int furthest = 0;
  for (const GidEntry& entry : entries) {
    if (fabric == Fabric::infiniband) {
      if (entry.type == kInfiniband) return entry;
      continue;
    }
    const int far = entry.type == (fabric == Fabric::iwarp ? kIwarpGid : kRoceV2) ? reach(entry.gid) : 0;
    if (far < furthest || far == 0 || (far == furthest && entry.gid != had)) continue;
    furthest = far;
    best = entry;
  }
  return best;
}

bool can_connect(const PortAddress& a, const PortAddress& b) {
  return nearness(a, b) >= 0;
}

std::vector<PlannedPair> pair_ports(std::span<const PortAddress> acceptors, std::span<const PortAddress> initiators) {
  struct Candidate {
    int near = 0;
    PlannedPair pair;
  };
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < acceptors.size(); ++i)
    for (std::size_t k = 0; k < initiators.size(); ++k)
      if (const int near = nearness(acceptors[i], initiators[k]); near >= 0)
        candidates.push_back({near, {static_cast<std::uint8_t>(k), static_cast<std::uint8_t>(i)}});
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.near > b.near; });
  std::vector<PlannedPair> pairs;
  for (const Candidate& each : candidates)
    if (std::none_of(pairs.begin(), pairs.end(), [&](const PlannedPair& other) {
          return other.initiator == each.pair.initiator || other.acceptor == each.pair.acceptor;
        }))
      pairs.push_back(each.pair);
  std::sort(pairs.begin(), pairs.end(),
            [](const PlannedPair& a, const PlannedPair& b) { return a.acceptor < b.acceptor; });
  std::vector<PlannedPair> links;
  for (const PlannedPair& each : pairs) {
    const auto wanted = std::max(acceptors[each.acceptor].queue_pairs, initiators[each.initiator].queue_pairs);
    links.insert(links.end(), std::min<std::size_t>(wanted, kMaxPlannedLinks / pairs.size()), each);
  }
  return links;
}

std::uint64_t bytes_per_second(std::uint8_t speed, std::uint8_t width) {
  double gigabits = 0;  // of one lane, without its encoding
  switch (speed) {
    case 1: gigabits = 2; break;                   // SDR
    case 2: gigabits = 4; break;                   // DDR
    case 4: gigabits = 8; break;                   // QDR
    case 8: gigabits = 10; break;                  // FDR10
    case 16: gigabits = 14.0625 * 64 / 66; break;  // FDR
    case 32: gigabits = 25; break;                 // EDR
    case 64: gigabits = 50; break;                 // HDR
    case 128: gigabits = 100; break;               // NDR
    default: break;
  }
  int lanes = 0;
  switch (width) {
    case 1: lanes = 1; break;
    case 2: lanes = 4; break;
    case 4: lanes = 8; break;
    case 8: lanes = 12; break;
    case 16: lanes = 2; break;
    default: break;
  }
  return static_cast<std::uint64_t>(gigabits * lanes * 1e9 / 8);
}

std::string text_of(const PortAddress& address) {
  const Gid& gid = address.gid;
  if (address.fabric != Fabric::infiniband && is_ipv4(gid))
    return fmt::format("{}.{}.{}.{}", at(gid, 12), at(gid, 13), at(gid, 14), at(gid, 15));
  std::string text;
  for (std::size_t i = 0; i < gid.size(); i += 2)
    text += fmt::format("{}{:x}", text.empty() ? "" : ":", at(gid, i) << 8 | at(gid, i + 1));
  return text;
}

std::string text_of(std::span<const GidEntry> entries) {
  std::string text;
  for (const GidEntry& each : entries)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", each.index,
                        text_of({each.type == kInfiniband ? Fabric::infiniband : Fabric::roce, each.gid, 0, 1}),
                        each.type == 1 ? " (RoCE v1)" : "");
  return text.empty() ? "none" : text;
}

}  // namespace fairway::transport::verbs

namespace fairway::transport {

Status check_rdma(const RdmaOptions& options) {
  const auto within = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    return value >= least && value <= most
               ? Status()
               : Status(ErrorCode::invalid_argument,
                        fmt::format("EngineOptions::rdma.{} is {}: it must be {} to {}", name, value, least, most));
  };
  for (const std::string& name : options.devices)
    if (name.empty()) return {ErrorCode::invalid_argument, "EngineOptions::rdma.devices has an empty name"};
  for (const Status& status :
       {within("gid_index", options.gid_index, -1, 255),
        within("queue_pairs", options.queue_pairs, 0, verbs::kMaxQueuePairs),
        within("service_level", options.service_level, 0, 15), within("traffic_class", options.traffic_class, 0, 255),
        within("hop_limit", options.hop_limit, 1, 255), within("timeout", options.timeout, 1, 31),
        within("retries", options.retries, 1, 7), within("partition", options.partition, 0, 0xffff)})
    if (!status) return status;
  if (options.mtu != 0 && (!std::has_single_bit(options.mtu) || options.mtu < 256 || options.mtu > 4096))
    return {ErrorCode::invalid_argument,
            fmt::format("EngineOptions::rdma.mtu is {}: it must be 256, 512, 1024, 2048, 4096 or 0", options.mtu)};
  return within("on_demand", static_cast<std::int64_t>(options.on_demand), 0, 2);
}

}  // namespace fairway::transport
