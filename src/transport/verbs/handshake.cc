#include "transport/verbs/handshake.h"

#include <algorithm>

#include "core/bytes.h"

namespace fairway::transport::verbs {
namespace {

constexpr std::size_t kMaxText = 256;
constexpr std::uint32_t kNumbers = 1 << 24;  // of queue pairs and packets

void put(ByteWriter& writer, const PortAddress& address) {
  writer.put(static_cast<std::uint8_t>(address.fabric))
      .put(address.queue_pairs)
      .put(address.lid)
      .put_bytes(address.gid);
}

void put(ByteWriter& writer, const Endpoint& endpoint) {
  writer.put(endpoint.number)
      .put(endpoint.first_psn)
      .put(endpoint.mtu)
      .put(endpoint.reads)
      .put(endpoint.receives)
      .put(endpoint.word)
      .put(endpoint.word_key);
}

// What is wrong with it; null: nothing.
const char* get(ByteReader& reader, PortAddress& address) {
  address.fabric = static_cast<Fabric>(reader.get<std::uint8_t>());
  address.queue_pairs = reader.get<std::uint8_t>();
  address.lid = reader.get<std::uint16_t>();
  const auto gid = reader.get_bytes(address.gid.size());
  std::copy(gid.begin(), gid.end(), address.gid.begin());
  const bool known = address.fabric == Fabric::infiniband || address.fabric == Fabric::roce;
  if (!reader.ok()) return nullptr;
  if (address.queue_pairs == 0 || address.queue_pairs > kMaxQueuePairs) return "no queue pairs, or too many";
  return known ? nullptr : "a port of an unknown fabric";
}

const char* get(ByteReader& reader, Endpoint& endpoint) {
  endpoint.number = reader.get<std::uint32_t>();
  endpoint.first_psn = reader.get<std::uint32_t>();
  endpoint.mtu = reader.get<std::uint8_t>();
  endpoint.reads = reader.get<std::uint8_t>();
  endpoint.receives = reader.get<std::uint16_t>();
  endpoint.word = reader.get<std::uint64_t>();
  endpoint.word_key = reader.get<std::uint32_t>();
  if (!reader.ok()) return nullptr;
  if (endpoint.number == 0 || endpoint.number >= kNumbers || endpoint.first_psn >= kNumbers)
    return "numbers of more than 24 bits";
  if (endpoint.mtu < 1 || endpoint.mtu > 5) return "an MTU that does not exist";
  if (endpoint.reads == 0) return "no reads at all";
  if (endpoint.receives < kLeastReceives || endpoint.receives > kMostReceives) return "too few or too many receives";
  return nullptr;
}

// What follows the kind and, of all but refused, the token.
const char* get_rest(ByteReader& reader, Handshake& message) {
  using Kind = Handshake::Kind;
  switch (message.kind) {
    case Kind::hello: {
      const auto count = reader.get<std::uint8_t>();
      if (count == 0 || count > kMaxPorts) return "no ports, or too many";
      for (std::uint8_t i = 0; i < count && reader.ok(); ++i)
        if (const char* wrong = get(reader, message.ports.emplace_back())) return wrong;
      return nullptr;
    }
    case Kind::plan: {
      const auto count = reader.get<std::uint8_t>();
      if (count == 0 || count > kMaxLinksPerPeer) return "no links, or too many";
      for (std::uint8_t i = 0; i < count && reader.ok(); ++i) {
        PlannedLink& link = message.links.emplace_back();
        link.initiator_port = reader.get<std::uint8_t>();
        link.acceptor_port = reader.get<std::uint8_t>();
        if (link.initiator_port >= kMaxPorts || link.acceptor_port >= kMaxPorts) return "a port beyond the last";
        if (const char* wrong = get(reader, link.address)) return wrong;
      }
      return nullptr;
    }
    case Kind::open:
    case Kind::accept:
    case Kind::ready:
    case Kind::closed:
      message.link = reader.get<std::uint16_t>();
      message.attempt = reader.get<std::uint32_t>();
      if (!reader.ok()) return nullptr;
      if (message.link >= kMaxLinksPerPeer || message.attempt == 0 || message.attempt >= kMaxAttempts)
        return "a link or an attempt beyond the last";
      return message.kind == Kind::open || message.kind == Kind::accept ? get(reader, message.endpoint) : nullptr;
    case Kind::refused:
      message.reason = reader.get_text();
      return message.reason.size() > kMaxText ? "a reason that is too long" : nullptr;
  }
  return "a message of unknown kind";
}

}  // namespace

std::vector<std::byte> encode(const Handshake& message) {
  using Kind = Handshake::Kind;
  std::vector<std::byte> bytes(64 + kMaxText + kMaxLinksPerPeer * 24);
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(message.kind));
  if (message.kind != Kind::refused) writer.put_bytes(message.token);
  switch (message.kind) {
    case Kind::hello:
      writer.put(static_cast<std::uint8_t>(message.ports.size()));
      for (const PortAddress& each : message.ports) put(writer, each);
      break;
    case Kind::plan:
      writer.put(static_cast<std::uint8_t>(message.links.size()));
      for (const PlannedLink& each : message.links) {
        writer.put(each.initiator_port).put(each.acceptor_port);
        put(writer, each.address);
      }
      break;
    case Kind::open:
    case Kind::accept:
      writer.put(message.link).put(message.attempt);
      put(writer, message.endpoint);
      break;
    case Kind::ready:
    case Kind::closed: writer.put(message.link).put(message.attempt); break;
    case Kind::refused: writer.put_text(std::string_view(message.reason).substr(0, kMaxText)); break;
  }
  bytes.resize(writer.size());
  return bytes;
}

Result<Handshake> decode_handshake(std::span<const std::byte> bytes) {
  const auto wrong = [](const char* what) {
    return Status(ErrorCode::protocol_error, std::string("verbs handshake: ") + what);
  };
  ByteReader reader(bytes);
  Handshake message;
  const auto version = reader.get<std::uint16_t>();
  message.kind = static_cast<Handshake::Kind>(reader.get<std::uint8_t>());
  if (!reader.ok()) return wrong("cut short");
  if (version != kVersion)
    return Status(ErrorCode::version_mismatch, "verbs handshake: the peer speaks version " + std::to_string(version) +
                                                   ", this side " + std::to_string(kVersion));
  if (message.kind != Handshake::Kind::refused) {
    const auto token = reader.get_bytes(kTokenBytes);
    std::copy(token.begin(), token.end(), message.token.begin());
  }
  if (const char* what = get_rest(reader, message)) return wrong(what);
  if (!reader.done()) return wrong("cut short, or with more than it should have");
  return message;
}

}  // namespace fairway::transport::verbs
