#include "transport/planned_handshake.h"

#include <algorithm>

#include "core/bytes.h"

namespace fairway::transport {
namespace {

constexpr std::size_t kMaxText = 256;
using Kind = PlannedHandshake::Kind;

bool carries_bytes(Kind kind) {
  return kind == Kind::hello || kind == Kind::plan || kind == Kind::open || kind == Kind::accept || kind == Kind::note;
}

bool carries_reason(Kind kind) {
  return kind == Kind::closed || kind == Kind::refused;
}

// The error, or null.
const char* get_rest(ByteReader& reader, PlannedHandshake& message) {
  switch (message.kind) {
    case Kind::hello:
    case Kind::note: break;
    case Kind::plan: {
      const auto count = reader.get<std::uint8_t>();
      if (count == 0 || count > kMaxPlannedLinks) return "the number of links is out of range";
      for (std::uint8_t i = 0; i < count && reader.ok(); ++i) {
        const auto initiator = reader.get<std::uint8_t>();
        message.pairs.push_back({initiator, reader.get<std::uint8_t>()});
        if (initiator >= kMaxPlannedDevices || message.pairs.back().acceptor >= kMaxPlannedDevices)
          return "a device index is out of range";
      }
      break;
    }
    case Kind::open:
    case Kind::accept:
    case Kind::ready:
    case Kind::closed:
      message.link = reader.get<std::uint16_t>();
      message.attempt = reader.get<std::uint32_t>();
      if (!reader.ok()) return nullptr;
      if (message.link >= kMaxPlannedLinks || message.attempt == 0 || message.attempt >= kMaxPlannedAttempts)
        return "a link or attempt number is out of range";
      break;
    case Kind::refused: break;
    default: return "unknown kind of message";
  }
  if (carries_reason(message.kind)) {
    message.reason = reader.get_text();
    return message.reason.size() > kMaxText ? "the reason is too long" : nullptr;
  }
  if (!carries_bytes(message.kind)) return nullptr;
  const auto bytes = reader.get_sized();
  message.bytes.assign(bytes.begin(), bytes.end());
  return bytes.size() > kMaxPlannedBytes ? "the payload is too long" : nullptr;
}

}  // namespace

std::vector<std::byte> encode(const PlannedHandshake& message, std::uint16_t version) {
  std::vector<std::byte> bytes(64 + kMaxText + 2 * message.pairs.size() + message.bytes.size());
  ByteWriter writer(bytes);
  writer.put(version).put(static_cast<std::uint8_t>(message.kind));
  if (message.kind != Kind::refused) {
    writer.put_bytes(message.token);
    if (message.kind == Kind::plan) {
      writer.put(static_cast<std::uint8_t>(message.pairs.size()));
      for (const PlannedPair& each : message.pairs) writer.put(each.initiator).put(each.acceptor);
    } else if (message.kind != Kind::hello && message.kind != Kind::note) {
      writer.put(message.link).put(message.attempt);
    }
    if (carries_bytes(message.kind)) writer.put_sized(message.bytes);
  }
  if (carries_reason(message.kind)) writer.put_text(std::string_view(message.reason).substr(0, kMaxText));
  bytes.resize(writer.size());
  return bytes;
}

Result<PlannedHandshake> decode_planned(std::span<const std::byte> bytes, std::uint16_t version,
                                        std::string_view name) {
  const auto wrong = [&](const char* what) {
    return Status(ErrorCode::protocol_error, "malformed " + std::string(name) + " handshake: " + what);
  };
  ByteReader reader(bytes);
  PlannedHandshake message;
  const auto theirs = reader.get<std::uint16_t>();
  message.kind = static_cast<Kind>(reader.get<std::uint8_t>());
  if (!reader.ok()) return wrong("truncated");
  if (theirs != version)
    return Status(ErrorCode::version_mismatch, std::string(name) + ": the peer speaks handshake version " +
                                                   std::to_string(theirs) + ", this side " + std::to_string(version) +
                                                   ": run the same Fairway on both sides");
  if (message.kind != Kind::refused) {
    const auto token = reader.get_bytes(kPlanTokenBytes);
    std::copy(token.begin(), token.end(), message.token.begin());
  }
  if (const char* what = get_rest(reader, message)) return wrong(what);
  if (!reader.done()) return wrong("wrong length");
  return message;
}

}  // namespace fairway::transport
