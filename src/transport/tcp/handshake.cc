#include "transport/tcp/handshake.h"

#include <algorithm>

#include "core/bytes.h"

namespace fairway::transport::tcp {
namespace {
constexpr std::size_t kMaxText = 256;
}

std::vector<std::byte> encode(const Handshake& message) {
  std::vector<std::byte> bytes(64 + (kMaxAddresses + 1) * (kMaxText + 2));
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(message.kind));
  if (message.kind == Handshake::Kind::offer) {
    writer.put_bytes(message.token).put(message.lanes).put(static_cast<std::uint8_t>(message.addresses.size()));
    for (const std::string& address : message.addresses) writer.put_text(address);
  } else if (message.kind == Handshake::Kind::refused) {
    writer.put_text(std::string_view(message.reason).substr(0, kMaxText));
  } else if (message.kind == Handshake::Kind::segments) {
    writer.put(message.address).put(message.segment_bytes);
  }
  bytes.resize(writer.size());
  return bytes;
}

Result<Handshake> decode_handshake(std::span<const std::byte> bytes) {
  const auto wrong = [](const char* what) {
    return Status(ErrorCode::protocol_error, std::string("malformed tcp handshake: ") + what);
  };
  ByteReader reader(bytes);
  Handshake message;
  const auto version = reader.get<std::uint16_t>();
  if (!reader.ok()) return wrong("truncated");
  if (version != kVersion)
    return Status(ErrorCode::version_mismatch, "tcp: the peer speaks handshake version " + std::to_string(version) +
                                                   ", this side " + std::to_string(kVersion) +
                                                   ": run the same Fairway on both sides");
  const auto kind = reader.get<std::uint8_t>();
  message.kind = static_cast<Handshake::Kind>(kind);
  if (kind == static_cast<std::uint8_t>(Handshake::Kind::offer)) {
    const auto token = reader.get_bytes(kTokenBytes);
    std::copy(token.begin(), token.end(), message.token.begin());
    message.lanes = reader.get<std::uint16_t>();
    const auto count = reader.get<std::uint8_t>();
    if (count == 0 || count > kMaxAddresses) return wrong("the number of addresses is out of range");
    for (std::uint8_t i = 0; i < count && reader.ok(); ++i) {
      message.addresses.push_back(reader.get_text());
      if (message.addresses.back().size() > kMaxText) return wrong("an address is too long");
    }
    if (message.lanes == 0 || message.lanes * count > kMaxLanesPerPeer)
      return wrong("the number of lanes is out of range");
  } else if (kind == static_cast<std::uint8_t>(Handshake::Kind::refused)) {
    message.reason = reader.get_text();
    if (message.reason.size() > kMaxText) return wrong("the reason is too long");
  } else if (kind == static_cast<std::uint8_t>(Handshake::Kind::segments)) {
    message.address = reader.get<std::uint8_t>();
    message.segment_bytes = reader.get<std::uint16_t>();
    if (message.address >= kMaxAddresses || message.segment_bytes < kLeastSegment)
      return wrong("the segments are too short, or of no address");
  } else if (kind != static_cast<std::uint8_t>(Handshake::Kind::hello)) {
    return wrong("unknown kind of message");
  }
  if (!reader.done()) return wrong("wrong length");
  return message;
}

}  // namespace fairway::transport::tcp
