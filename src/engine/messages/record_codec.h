#pragma once

#include <concepts>
#include <optional>
#include <string_view>
#include <type_traits>

#include "core/bytes.h"
#include "engine/messages/record.h"
#include "engine/messages/record_body.h"

// Encodes and decodes records. Nothing else knows a record's layout.
namespace fairway::engine {

std::string_view to_string(RecordType type);  // as docs/wire-format-engine.md names it

class RecordWriter {
 public:
  explicit RecordWriter(ByteWriter& out) : out_(out) {}
  void operator()(const auto&... fields) { (put(fields), ...); }

 private:
  void put(std::unsigned_integral auto value) { out_.put(value); }
  void put(ErrorCode code) { out_.put(static_cast<std::uint8_t>(code)); }
  void put(RegionId id) { out_.put(id.slot).put(id.generation); }
  void put(TransferId id) { out_.put(id.slot).put(id.generation); }
  void put(const RequestHead& head) { (*this)(head.token, head.serial, head.region); }
  void put(const StageCopy& copy) { (*this)(copy.number, copy.slot, copy.region, copy.parts); }
  void put(const Tail& tail) { out_.put_bytes(tail.bytes); }
  void put(const Sized& sized) { out_.put_sized(sized.bytes); }
  void put(const StageParts& parts) {
    out_.put(parts.count);
    for (std::uint16_t i = 0; i < parts.count; ++i) out_.put(parts.all[i].offset).put(parts.all[i].length);
  }

  ByteWriter& out_;
};

// From bytes that anyone may have sent.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> body) : in_(body) {}
  void operator()(auto&... fields) { (get(fields), ...); }
  [[nodiscard]] bool done() const { return in_.done() && !malformed_; }

 private:
  template <std::unsigned_integral T>
  void get(T& value) {
    value = in_.get<T>();
  }
  void get(ErrorCode& code) { code = static_cast<ErrorCode>(in_.get<std::uint8_t>()); }
  void get(RegionId& id) { (*this)(id.slot, id.generation); }
  void get(TransferId& id) { (*this)(id.slot, id.generation); }
  void get(RequestHead& head) { (*this)(head.token, head.serial, head.region); }
  void get(StageCopy& copy) { (*this)(copy.number, copy.slot, copy.region, copy.parts); }
  void get(Tail& tail) { tail.bytes = in_.rest(); }
  void get(Sized& sized) { sized.bytes = in_.get_sized(); }
  void get(StageParts& parts) {
    (*this)(parts.count);
    malformed_ |= parts.count > kMostParts;
    for (std::uint16_t i = 0; i < parts.count && !malformed_; ++i) (*this)(parts.all[i].offset, parts.all[i].length);
  }

  ByteReader in_;
  bool malformed_ = false;
};

// Writes header and body into `out` and returns their size. RecordStream fills in the sequence number later, if the
// record has one.
template <class Body>
[[gnu::flatten]] std::size_t encode(std::span<std::byte> out, const Body& body) {
  ByteWriter writer(out);
  writer.put(std::uint32_t{0}).put(static_cast<std::uint8_t>(Body::kType));
  RecordWriter fields(writer);
  Body::each(body, fields);
  return writer.size();
}
template <class Body>
void encode(Record& record, const Body& body) {
  record.size = static_cast<std::uint32_t>(encode(std::span(record.bytes), body));
}

// Empty if the bytes are not exactly that body. Spans point into `bytes`.
template <class Body>
[[gnu::flatten]] std::optional<Body> decode(std::span<const std::byte> bytes) {
  std::optional<Body> body(std::in_place);
  RecordReader fields(bytes);
  Body::each(*body, fields);
  if (!fields.done()) body.reset();
  return body;
}

// A record's header and the position of its body. Empty if the bytes are no record of a known type.
struct RecordHeader {
  std::uint32_t sequence = 0;
  RecordType type = RecordType::event;
  std::span<const std::byte> body;
};
std::optional<RecordHeader> decode_header(std::span<const std::byte> bytes);

}  // namespace fairway::engine
