#include "transport/verbs/renewed_keys.h"

#include <algorithm>

#include "core/bytes.h"
#include "transport/handles.h"

namespace fairway::transport::verbs {
namespace {

Status wrong(const char* what) {
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
  if (port >= kMaxPorts) return wrong("the port number is out of range");
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
    return wrong("the number of keys is out of range, or it is truncated");
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
