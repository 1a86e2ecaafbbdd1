#include "transport/verbs/handshake.h"

#include <algorithm>
#include <string>

#include "core/bytes.h"
#include "transport/command.h"

namespace fairway::transport::verbs {
namespace {

constexpr std::uint32_t kNumbers = 1 << 24;  // of queue pairs and packets
constexpr std::size_t kPortBytes = 23, kEndpointBytes = kPortBytes + 40;
constexpr std::uint8_t kUsesCm = 1, kNoImmediates = 2, kGlobal = 4;  // of a port's flags

Status wrong(const char* what) {
  return {ErrorCode::protocol_error, std::string("malformed verbs handshake: ") + what};
}

void put(ByteWriter& writer, const PortAddress& address) {
  writer.put(static_cast<std::uint8_t>(address.fabric))
      .put(address.queue_pairs)
      .put(address.lid)
      .put_bytes(address.gid)
      .put(static_cast<std::uint8_t>((address.uses_cm ? kUsesCm : 0) | (address.no_immediates ? kNoImmediates : 0) |
                                     (address.global ? kGlobal : 0)))
      .put(address.cm_port);
}

// The error, or null.
const char* get(ByteReader& reader, PortAddress& address) {
  address.fabric = static_cast<Fabric>(reader.get<std::uint8_t>());
  address.queue_pairs = reader.get<std::uint8_t>();
  address.lid = reader.get<std::uint16_t>();
  const auto gid = reader.get_bytes(address.gid.size());
  std::copy(gid.begin(), gid.end(), address.gid.begin());
  const auto flags = reader.get<std::uint8_t>();
  address.uses_cm = (flags & kUsesCm) != 0;
  address.no_immediates = (flags & kNoImmediates) != 0;
  address.global = (flags & kGlobal) != 0;
  address.cm_port = reader.get<std::uint16_t>();
  const bool known = address.fabric >= Fabric::infiniband && address.fabric <= Fabric::iwarp;
  if (!reader.ok()) return "truncated";
  if (address.queue_pairs == 0 || address.queue_pairs > kMaxQueuePairs)
    return "the number of queue pairs is out of range";
  if ((flags & ~(kUsesCm | kNoImmediates | kGlobal)) != 0) return "unknown flags of a port";
  if (address.fabric != Fabric::infiniband && address.global) return "a routing header that only InfiniBand lacks";
  if (address.fabric == Fabric::iwarp && !address.uses_cm) return "iWARP without rdma_cm";
  if (address.fabric == Fabric::infiniband && address.uses_cm) return "InfiniBand by rdma_cm";
  return known ? nullptr : "unknown kind of fabric";
}

}  // namespace

std::vector<std::byte> encode(std::span<const PortAddress> ports) {
  std::vector<std::byte> bytes(1 + ports.size() * kPortBytes);
  ByteWriter writer(bytes);
  writer.put(static_cast<std::uint8_t>(ports.size()));
  for (const PortAddress& each : ports) put(writer, each);
  return bytes;
}

Result<std::vector<PortAddress>> decode_ports(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto count = reader.get<std::uint8_t>();
  if (count == 0 || count > kMaxPorts) return wrong("the number of ports is out of range");
  std::vector<PortAddress> ports(count);
  for (PortAddress& each : ports)
    if (const char* what = get(reader, each)) return wrong(what);
  if (!reader.done()) return wrong("wrong length");
  return ports;
}

std::vector<std::byte> encode(const Endpoint& endpoint) {
  std::vector<std::byte> bytes(kEndpointBytes);
  ByteWriter writer(bytes);
  put(writer, endpoint.port);
  writer.put(endpoint.number)
      .put(endpoint.first_psn)
      .put(endpoint.mtu)
      .put(endpoint.reads)
      .put(endpoint.receives)
      .put(endpoint.word)
      .put(endpoint.word_key)
      .put_bytes(endpoint.secret);
  return bytes;
}

Result<Endpoint> decode_endpoint(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Endpoint endpoint;
  if (const char* what = get(reader, endpoint.port)) return wrong(what);
  endpoint.number = reader.get<std::uint32_t>();
  endpoint.first_psn = reader.get<std::uint32_t>();
  endpoint.mtu = reader.get<std::uint8_t>();
  endpoint.reads = reader.get<std::uint8_t>();
  endpoint.receives = reader.get<std::uint16_t>();
  endpoint.word = reader.get<std::uint64_t>();
  endpoint.word_key = reader.get<std::uint32_t>();
  const auto secret = reader.get_bytes(endpoint.secret.size());
  std::copy(secret.begin(), secret.end(), endpoint.secret.begin());
  if (!reader.done()) return wrong("wrong length");
  if (endpoint.number == 0 || endpoint.number >= kNumbers || endpoint.first_psn >= kNumbers)
    return wrong("a QPN or PSN is out of range");
  if (endpoint.mtu < 1 || endpoint.mtu > 5) return wrong("unknown MTU");
  if (endpoint.reads == 0) return wrong("no reads allowed (max_dest_rd_atomic)");
  if (endpoint.receives < kLeastReceives || endpoint.receives > kMostReceives)
    return wrong("the number of receives is out of range");
  return endpoint;
}

namespace {

Status wrong_note(const char* what) {
  return {ErrorCode::protocol_error, std::string("malformed verbs note: ") + what};
}

}  // namespace

std::vector<std::byte> encode_renewed(std::size_t port, std::span<const RenewedKey> keys) {
  std::vector<std::byte> bytes(1 + keys.size() * (8 + 2 + kMaxKeyBytes));
  ByteWriter writer(bytes);
  writer.put(static_cast<std::uint8_t>(port));
  for (const RenewedKey& each : keys) writer.put(each.region).put_sized(encode(each.key));
  bytes.resize(writer.size());
  return bytes;
}

Result<std::vector<RenewedKey>> decode_renewed(std::span<const std::byte> bytes, std::size_t& port) {
  ByteReader reader(bytes);
  port = reader.get<std::uint8_t>();
  if (port >= kMaxPorts) return wrong_note("the port number is out of range");
  std::vector<RenewedKey> keys;
  while (reader.ok() && !reader.done()) {
    RenewedKey& each = keys.emplace_back();
    each.region = reader.get<std::uint64_t>();
    const auto key = decode_key(reader.get_sized());
    if (!reader.ok()) break;
    if (!key) return key.status();
    each.key = *key;
  }
  if (!reader.ok() || keys.empty() || keys.size() > kRenewedInNote)
    return wrong_note("the number of keys is out of range, or it is truncated");
  return keys;
}

bool RenewedKeys::keep(PeerIndex peer, std::size_t port, std::span<const RenewedKey> keys) {
  auto& regions = peers_[peer];
  for (const RenewedKey& each : keys) {
    const RegionId id = region_of(each.region);
    if (regions.size() == kMostRegions && !regions.contains(id.slot)) return false;
    Region& region = regions[id.slot];
    if (region.generation != id.generation) region = {id.generation, {}};
    const auto at =
        std::find_if(region.keys.begin(), region.keys.end(), [&](const AtPort& key) { return key.port == port; });
    if (at == region.keys.end())
      region.keys.push_back({port, each.key});
    else
      at->key = each.key;
  }
  return true;
}

std::span<const RenewedKeys::AtPort> RenewedKeys::of(PeerIndex peer, RegionId region) const {
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return {};
  const auto at = known->second.find(region.slot);
  if (at == known->second.end() || at->second.generation != region.generation) return {};
  return at->second.keys;
}

}  // namespace fairway::transport::verbs
