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

template <class Body>
void write_reason(ByteWriter& out, const Body& body) {
  out.put(static_cast<std::uint8_t>(body.reason)).put_text(cut(body.text, kMaxReason));
}

template <class Body>
Result<Body> read_reason(std::span<const std::byte> bytes, std::string_view what) {
  ByteReader reader(bytes);
  const auto reason = reader.get<std::uint8_t>();
  Body body;
  body.text = reader.get_text();
  if (!reader.done()) return malformed(what, "its size");
  if (reason < static_cast<std::uint8_t>(Reason::closed) || reason > static_cast<std::uint8_t>(Reason::no_directory))
    return malformed(what, "its reason");
  if (body.text.size() > kMaxReason) return malformed(what, "its text is too long");
  for (char& letter : body.text)
    if (static_cast<unsigned char>(letter) < 0x20) letter = '?';  // the text ends up in logs and terminals
  body.reason = static_cast<Reason>(reason);
  return body;
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

void Refuse::write(ByteWriter& out) const {
  write_reason(out, *this);
}
Result<Refuse> Refuse::read(std::span<const std::byte> body) {
  return read_reason<Refuse>(body, "refusal");
}
void Goodbye::write(ByteWriter& out) const {
  write_reason(out, *this);
}
Result<Goodbye> Goodbye::read(std::span<const std::byte> body) {
  return read_reason<Goodbye>(body, "goodbye");
}

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
