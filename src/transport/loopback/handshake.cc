#include "transport/loopback/handshake.h"

#include <string>

#include "core/bytes.h"

namespace fairway::transport::loopback {

namespace {
constexpr std::uint32_t kMagic = 0x424c5746;  // "FWLB"

Status malformed(const std::string& what) {
  return {ErrorCode::protocol_error, "malformed loopback handshake: " + what};
}
}  // namespace

std::array<std::byte, kHandshakeBytes> encode(const Handshake& message) {
  std::array<std::byte, kHandshakeBytes> bytes{};
  ByteWriter(bytes)
      .put(kMagic)
      .put(kHandshakeVersion)
      .put(static_cast<std::uint8_t>(message.kind))
      .put(static_cast<std::uint8_t>(message.reason))
      .put(message.fabric)
      .put(message.offer)
      .put(message.attempt)
      .put(message.devices)
      .put(message.index)
      .put(message.links)
      .put(std::uint16_t{0});
  return bytes;
}

Result<Handshake> decode_handshake(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  if (reader.get<std::uint32_t>() != kMagic) return malformed("wrong magic");
  const auto version = reader.get<std::uint16_t>();
  if (reader.ok() && version != kHandshakeVersion)
    return Status(ErrorCode::version_mismatch,
                  "loopback: the peer speaks handshake version " + std::to_string(version) + ", this side " +
                      std::to_string(kHandshakeVersion) + ": run the same Fairway on both sides");
  if (bytes.size() != kHandshakeBytes) return malformed(std::to_string(bytes.size()) + " bytes");
  Handshake message;
  const auto kind = reader.get<std::uint8_t>();
  const auto reason = reader.get<std::uint8_t>();
  message.fabric = reader.get<std::uint64_t>();
  message.offer = reader.get<std::uint64_t>();
  message.attempt = reader.get<std::uint32_t>();
  message.devices = reader.get<std::uint16_t>();
  message.index = reader.get<std::uint16_t>();
  message.links = reader.get<std::uint16_t>();
  if (reader.get<std::uint16_t>() != 0 || !reader.done()) return malformed("a reserved field is set");
  if (kind < 1 || kind > 4) return malformed("unknown kind " + std::to_string(kind));
  if (reason > static_cast<std::uint8_t>(ErrorCode::system_error)) return malformed("unknown reason");
  message.kind = static_cast<Handshake::Kind>(kind);
  message.reason = static_cast<ErrorCode>(reason);
  switch (message.kind) {
    case Handshake::Kind::hello:
      if (message.devices == 0 || message.devices > kMaxLinksPerPeer)
        return malformed("the number of devices is out of range");
      break;
    case Handshake::Kind::offer:
      if (message.links == 0 || message.links > kMaxLinksPerPeer || message.index >= message.links)
        return malformed("the link number is out of range");
      [[fallthrough]];
    case Handshake::Kind::attached:
      if (message.attempt == 0 || message.index >= kMaxLinksPerPeer)
        return malformed("the link or attempt number is out of range");
      break;
    case Handshake::Kind::refused: break;
  }
  return message;
}

}  // namespace fairway::transport::loopback
