#include "engine/control_message.h"

#include "control/control.h"
#include "core/bytes.h"

namespace fairway::engine {
namespace {

constexpr std::uint16_t kMostNamed = 32;

template <class Fill>
std::vector<std::byte> compose(MessageType type, Fill fill) {
  std::vector<std::byte> bytes(control::kMaxMessage);
  ByteWriter writer(bytes);
  writer.put(static_cast<std::uint8_t>(type));
  fill(writer);
  bytes.resize(writer.ok() ? writer.size() : 0);  // too long for one message: the caller's send() refuses an empty one
  return bytes;
}

ByteReader body(std::span<const std::byte> bytes) {
  return ByteReader(bytes.empty() ? bytes : bytes.subspan(1));
}

}  // namespace

std::vector<std::byte> format(const Hello& message) {
  return compose(MessageType::hello, [&](ByteWriter& writer) {
    writer.put(message.worker)
        .put(message.cores)
        .put(message.event_credits)
        .put(message.record_bytes)
        .put(message.unexpected_bytes);
    writer.put(message.scratch_offset);
    writer.put(static_cast<std::uint16_t>(message.transports.size()));
    for (const std::string& transport : message.transports) writer.put_text(transport);
    writer.put_sized(message.scratch);
  });
}
std::vector<std::byte> format(const Exchange& message) {
  return compose(MessageType::exchange,
                 [&](ByteWriter& writer) { writer.put_text(message.transport).put_bytes(message.bytes); });
}
std::vector<std::byte> format(const LinkClosed& message) {
  return compose(MessageType::link_closed, [&](ByteWriter& writer) {
    writer.put_text(message.transport).put(message.name).put(message.immediates);
  });
}
std::vector<std::byte> format(const Lookup& message) {
  return compose(MessageType::lookup, [&](ByteWriter& writer) { writer.put(message.token).put_text(message.name); });
}
std::vector<std::byte> format(const LookupReply& message) {
  return compose(MessageType::lookup_reply, [&](ByteWriter& writer) {
    writer.put(message.token).put(message.code).put_sized(message.description);
  });
}

std::optional<MessageType> message_type(std::span<const std::byte> bytes) {
  if (bytes.empty()) return std::nullopt;
  const auto type = std::to_integer<std::uint8_t>(bytes[0]);
  switch (static_cast<MessageType>(type)) {
    case MessageType::hello:
    case MessageType::exchange:
    case MessageType::link_closed:
    case MessageType::lookup:
    case MessageType::lookup_reply: return static_cast<MessageType>(type);
  }
  return std::nullopt;
}

std::optional<Hello> parse_hello(std::span<const std::byte> bytes) {
  ByteReader reader = body(bytes);
  Hello message;
  message.worker = reader.get<std::uint16_t>();
  message.cores = reader.get<std::uint16_t>();
  message.event_credits = reader.get<std::uint32_t>();
  message.record_bytes = reader.get<std::uint32_t>();
  message.unexpected_bytes = reader.get<std::uint32_t>();
  message.scratch_offset = reader.get<std::uint64_t>();
  const auto count = reader.get<std::uint16_t>();
  if (count > kMostNamed) return std::nullopt;
  for (std::uint16_t i = 0; i < count && reader.ok(); ++i) message.transports.push_back(reader.get_text());
  const auto scratch = reader.get_sized();
  message.scratch.assign(scratch.begin(), scratch.end());
  return reader.done() ? std::optional(std::move(message)) : std::nullopt;
}

std::optional<Exchange> parse_exchange(std::span<const std::byte> bytes) {
  ByteReader reader = body(bytes);
  Exchange message;
  message.transport = reader.get_text();
  message.bytes = reader.rest();
  return reader.done() ? std::optional(std::move(message)) : std::nullopt;
}

std::optional<LinkClosed> parse_link_closed(std::span<const std::byte> bytes) {
  ByteReader reader = body(bytes);
  LinkClosed message;
  message.transport = reader.get_text();
  message.name = reader.get<std::uint64_t>();
  message.immediates = reader.get<std::uint64_t>();
  return reader.done() ? std::optional(std::move(message)) : std::nullopt;
}

std::optional<Lookup> parse_lookup(std::span<const std::byte> bytes) {
  ByteReader reader = body(bytes);
  Lookup message;
  message.token = reader.get<std::uint64_t>();
  message.name = reader.get_text();
  return reader.done() ? std::optional(std::move(message)) : std::nullopt;
}

std::optional<LookupReply> parse_lookup_reply(std::span<const std::byte> bytes) {
  ByteReader reader = body(bytes);
  LookupReply message;
  message.token = reader.get<std::uint64_t>();
  message.code = reader.get<std::uint8_t>();
  const auto description = reader.get_sized();
  message.description.assign(description.begin(), description.end());
  return reader.done() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace fairway::engine
