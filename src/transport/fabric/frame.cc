#include "transport/fabric/frame.h"

#include "core/bytes.h"

namespace fairway::transport::fabric {
namespace {

bool about_link(Note::Kind kind) {
  return kind == Note::Kind::ask_key || kind == Note::Kind::key;
}

}  // namespace

std::vector<std::byte> encode(const Note& note) {
  std::vector<std::byte> bytes(32);
  ByteWriter writer(bytes);
  writer.put(static_cast<std::uint8_t>(note.kind)).put(note.region);
  if (about_link(note.kind)) writer.put(note.link).put(note.attempt);
  if (note.kind == Note::Kind::key) writer.put(static_cast<std::uint8_t>(note.present ? 1 : 0)).put(note.key);
  bytes.resize(writer.size());
  return bytes;
}

Result<Note> decode_note(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Note note;
  note.kind = static_cast<Note::Kind>(reader.get<std::uint8_t>());
  note.region = reader.get<std::uint64_t>();
  bool known = note.kind >= Note::Kind::revoke && note.kind <= Note::Kind::key;
  if (about_link(note.kind)) {
    note.link = reader.get<std::uint16_t>();
    note.attempt = reader.get<std::uint32_t>();
  }
  if (note.kind == Note::Kind::key) {
    const auto present = reader.get<std::uint8_t>();
    known = known && present <= 1;
    note.present = present == 1;
    note.key = reader.get<std::uint64_t>();
  }
  if (!known || !reader.done()) return Status(ErrorCode::protocol_error, "malformed fabric note");
  return note;
}

}  // namespace fairway::transport::fabric
