#include "control/bodies.h"

#include <fmt/format.h>

namespace fairway::control {
namespace {

Status malformed(std::string_view what, std::string_view why) {
  return {ErrorCode::protocol_error, fmt::format("malformed {}: {}", what, why)};
}

std::string_view cut(std::string_view text, std::size_t most) {
  return text.substr(0, most);
}

bool printable(const std::string& text) {
  for (const char letter : text)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) return false;
  return true;
}

}  // namespace

void Identity::write(ByteWriter& out) const {
  out.put(incarnation).put(session).put(received).put(stamp).put(timeout_ms).put(static_cast<std::uint8_t>(intent));
  out.put(static_cast<std::uint8_t>(by_caller ? 1 : 0));
  out.put_text(cut(name, kMaxName)).put_text(cut(address, kMaxName));
}

Result<Identity> Identity::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Identity out;
  out.incarnation = reader.get<std::uint64_t>();
  out.session = reader.get<std::uint64_t>();
  out.received = reader.get<std::uint64_t>();
  out.stamp = reader.get<std::uint64_t>();
  out.timeout_ms = reader.get<std::uint32_t>();
  const auto intent = reader.get<std::uint8_t>();
  const auto by_caller = reader.get<std::uint8_t>();
  out.name = reader.get_text();
  out.address = reader.get_text();
  if (!reader.done()) return malformed("identity", "its size");
  if (intent > static_cast<std::uint8_t>(Intent::directory)) return malformed("identity", "its intent");
  if (by_caller > 1) return malformed("identity", "its progress flag");
  if (out.incarnation == 0) return malformed("identity", "its incarnation");
  if (out.timeout_ms == 0) return malformed("identity", "its timeout");
  if (out.name.empty() || out.name.size() > kMaxName || !printable(out.name)) return malformed("identity", "its name");
  if (out.address.empty() || out.address.size() > kMaxName || !printable(out.address))
    return malformed("identity", "its address");
  out.intent = static_cast<Intent>(intent);
  out.by_caller = by_caller == 1;
  const bool names_session = out.intent == Intent::connect || out.intent == Intent::resume;
  if (names_session != (out.session != 0)) return malformed("identity", "its session");
  return out;
}

void Accept::write(ByteWriter& out) const {
  out.put(session).put(received).put(stamp);
}

Result<Accept> Accept::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Accept out;
  out.session = reader.get<std::uint64_t>();
  out.received = reader.get<std::uint64_t>();
  out.stamp = reader.get<std::uint64_t>();
  if (!reader.done()) return malformed("acceptance", "its size");
  return out;
}

template <FrameType kFrame>
void Ending<kFrame>::write(ByteWriter& out) const {
  out.put(static_cast<std::uint8_t>(reason)).put_text(cut(text, kMaxReason));
}

template <FrameType kFrame>
Result<Ending<kFrame>> Ending<kFrame>::read(std::span<const std::byte> body) {
  constexpr std::string_view kWhat = kFrame == FrameType::refuse ? "refusal" : "goodbye";
  ByteReader reader(body);
  Ending out;
  const auto reason = reader.get<std::uint8_t>();
  out.text = reader.get_text();
  if (!reader.done()) return malformed(kWhat, "its size");
  if (reason < static_cast<std::uint8_t>(Reason::closed) || reason > static_cast<std::uint8_t>(Reason::no_directory))
    return malformed(kWhat, "its reason");
  if (out.text.size() > kMaxReason) return malformed(kWhat, "its text is too long");
  for (char& letter : out.text)
    if (static_cast<unsigned char>(letter) < 0x20) letter = '?';  // the text ends up in logs and terminals
  out.reason = static_cast<Reason>(reason);
  return out;
}

template struct Ending<FrameType::refuse>;
template struct Ending<FrameType::goodbye>;

void Message::write(ByteWriter& out) const {
  out.put(sequence).put(ack).put_bytes(bytes);
}

Result<Message> Message::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Message out;
  out.sequence = reader.get<std::uint64_t>();
  out.ack = reader.get<std::uint64_t>();
  if (!reader.ok()) return malformed("message", "its size");
  out.bytes = reader.rest();
  if (out.bytes.size() > kMaxMessage) return malformed("message", "it is too long");
  return out;
}

void Ack::write(ByteWriter& out) const {
  out.put(ack);
}

Result<Ack> Ack::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Ack out;
  out.ack = reader.get<std::uint64_t>();
  if (!reader.done()) return malformed("acknowledgement", "its size");
  return out;
}

void Beat::write(ByteWriter& out) const {
  out.put(ack).put(steps).put(static_cast<std::uint8_t>(queued ? 1 : 0));
}

Result<Beat> Beat::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Beat out;
  out.ack = reader.get<std::uint64_t>();
  out.steps = reader.get<std::uint64_t>();
  const auto queued = reader.get<std::uint8_t>();
  if (!reader.done()) return malformed("heartbeat", "its size");
  if (queued > 1) return malformed("heartbeat", "its flag");
  out.queued = queued == 1;
  return out;
}

}  // namespace fairway::control
