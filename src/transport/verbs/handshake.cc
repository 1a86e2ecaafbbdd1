#include "transport/verbs/handshake.h"

#include <algorithm>
#include <string>

#include "core/bytes.h"

namespace fairway::transport::verbs {
namespace {

constexpr std::uint32_t kNumbers = 1 << 24;  // of queue pairs and packets
constexpr std::size_t kPortBytes = 20, kEndpointBytes = kPortBytes + 24;

Status wrong(const char* what) {
  return {ErrorCode::protocol_error, std::string("verbs handshake: ") + what};
}

void put(ByteWriter& writer, const PortAddress& address) {
  writer.put(static_cast<std::uint8_t>(address.fabric))
      .put(address.queue_pairs)
      .put(address.lid)
      .put_bytes(address.gid);
}

// What is wrong with it; null: nothing.
const char* get(ByteReader& reader, PortAddress& address) {
  address.fabric = static_cast<Fabric>(reader.get<std::uint8_t>());
  address.queue_pairs = reader.get<std::uint8_t>();
  address.lid = reader.get<std::uint16_t>();
  const auto gid = reader.get_bytes(address.gid.size());
  std::copy(gid.begin(), gid.end(), address.gid.begin());
  const bool known = address.fabric == Fabric::infiniband || address.fabric == Fabric::roce;
  if (!reader.ok()) return "cut short";
  if (address.queue_pairs == 0 || address.queue_pairs > kMaxQueuePairs) return "no queue pairs, or too many";
  return known ? nullptr : "a port of an unknown fabric";
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
  if (count == 0 || count > kMaxPorts) return wrong("no ports, or too many");
  std::vector<PortAddress> ports(count);
  for (PortAddress& each : ports)
    if (const char* what = get(reader, each)) return wrong(what);
  if (!reader.done()) return wrong("more than its ports");
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
      .put(endpoint.word_key);
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
  if (!reader.done()) return wrong("an endpoint that is cut short, or more than one");
  if (endpoint.number == 0 || endpoint.number >= kNumbers || endpoint.first_psn >= kNumbers)
    return wrong("numbers of more than 24 bits");
  if (endpoint.mtu < 1 || endpoint.mtu > 5) return wrong("an MTU that does not exist");
  if (endpoint.reads == 0) return wrong("no reads at all");
  if (endpoint.receives < kLeastReceives || endpoint.receives > kMostReceives)
    return wrong("too few or too many receives");
  return endpoint;
}

}  // namespace fairway::transport::verbs
