#include "control/frame.h"

#include <array>

#include <fmt/format.h>

#include "control/directory.h"
#include "core/bytes.h"

namespace fairway::control {
namespace {

std::array<std::byte, 8> number_bytes(std::uint64_t number) {
  std::array<std::byte, 8> bytes{};
  ByteWriter(bytes).put(number);
  return bytes;
}

}  // namespace

Status Sealer::seal(Hmac& hmac, FrameType type, std::span<const std::byte> body, std::vector<std::byte>& out) {
  if (body.size() > kMaxBody)
    return {ErrorCode::out_of_range,
            fmt::format("a frame of {} bytes is too large: the limit is {}", body.size(), kMaxBody)};
  std::array<std::byte, kHeaderSize> header{};
  ByteWriter(header).put(static_cast<std::uint32_t>(body.size())).put(static_cast<std::uint8_t>(type));
  const auto tag = hmac(key_, {number_bytes(sent_), header, body});
  if (!tag) return {ErrorCode::system_error, "OpenSSL cannot compute HMAC-SHA256"};
  ++sent_;
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), body.begin(), body.end());
  out.insert(out.end(), tag->begin(), tag->begin() + kTagSize);
  return {};
}

Result<std::optional<Frame>> Opener::open(Hmac& hmac, std::span<const std::byte> in, std::size_t& used) {
  used = 0;
  if (in.size() < kHeaderSize) return std::optional<Frame>();
  ByteReader reader(in.first(kHeaderSize));
  const auto size = reader.get<std::uint32_t>();
  const auto type = reader.get<std::uint8_t>();
  if (size > kMaxBody)
    return Status(ErrorCode::protocol_error, fmt::format("a frame claims {} bytes: the limit is {}", size, kMaxBody));
  if (type < static_cast<std::uint8_t>(FrameType::identity) || type > static_cast<std::uint8_t>(FrameType::answer))
    return Status(ErrorCode::protocol_error, fmt::format("unknown frame type {}", type));
  const std::size_t total = kHeaderSize + size + kTagSize;
  if (in.size() < total) return std::optional<Frame>();
  const auto body = in.subspan(kHeaderSize, size);
  const auto tag = hmac(key_, {number_bytes(received_), in.first(kHeaderSize), body});
  if (!tag || !same(std::span(*tag).first(kTagSize), in.subspan(kHeaderSize + size, kTagSize)))
    return Status(ErrorCode::checksum_mismatch,
                  fmt::format("frame {} has a wrong authentication tag: it was changed in transit", received_));
  ++received_;
  used = total;
  return std::optional<Frame>(Frame{static_cast<FrameType>(type), body});
}

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

namespace {

Status malformed(std::string_view what) {
  return {ErrorCode::protocol_error, fmt::format("malformed directory {}", what)};
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName;
}

}  // namespace

void Publish::write(ByteWriter& out) const {
  out.put(id).put_text(record);
}

Result<Publish> Publish::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Publish out;
  out.id = reader.get<std::uint64_t>();
  out.record = reader.get_text();
  if (!reader.done() || out.record.size() > kMaxRecord) return malformed("publication");
  return out;
}

void Withdraw::write(ByteWriter& out) const {
  out.put(id).put_text(name).put_text(started);
}

Result<Withdraw> Withdraw::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Withdraw out;
  out.id = reader.get<std::uint64_t>();
  out.name = reader.get_text();
  out.started = reader.get_text();
  if (!reader.done() || !is_name(out.name) || out.started.size() != kStartedText) return malformed("withdrawal");
  return out;
}

void Lookup::write(ByteWriter& out) const {
  out.put(id).put_text(name);
}

Result<Lookup> Lookup::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Lookup out;
  out.id = reader.get<std::uint64_t>();
  out.name = reader.get_text();
  if (!reader.done() || !is_name(out.name)) return malformed("lookup");
  return out;
}

void Answer::write(ByteWriter& out) const {
  out.put(id).put(static_cast<std::uint8_t>(verdict)).put_text(bytes);
}

Result<Answer> Answer::read(std::span<const std::byte> body) {
  ByteReader reader(body);
  Answer out;
  out.id = reader.get<std::uint64_t>();
  const auto verdict = reader.get<std::uint8_t>();
  out.bytes = reader.get_text();
  if (!reader.done() || verdict > static_cast<std::uint8_t>(Verdict::refused) || out.bytes.size() > kMaxRecord)
    return malformed("answer");
  out.verdict = static_cast<Verdict>(verdict);
  return out;
}

}  // namespace fairway::control
