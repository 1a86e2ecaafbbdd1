#include "control/directory_bodies.h"

#include <fmt/format.h>

#include "control/bodies.h"
#include "control/record.h"

namespace fairway::control {
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
