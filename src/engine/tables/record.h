#pragma once

#include <array>
#include <bitset>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/bytes.h"
#include "engine/tables/record_body.h"
#include "engine/tables/transfer.h"
#include "transport/transport.h"

// Records (record_body.h) are carried by any link that carries messages. A stream of them per peer and direction is
// delivered exactly once, in any order, also across links that break.
namespace fairway::engine {

inline constexpr std::size_t kRecordBytes = transport::kMessageBytes;  // header and body
inline constexpr std::size_t kRecordHeader = 5;                        // sequence, type
inline constexpr std::uint32_t kRecordWindow = 64;  // sent and not yet known to have arrived, per peer
// How far a record may be ahead of the lowest one that the receiver has processed. A record counts as arrived once it
// waits at its link. Records on other links may overtake it there, as many as one poll of all links returns.
inline constexpr std::uint32_t kReorderWindow = 8192 - kRecordWindow;

struct Record {
  std::uint32_t sequence = 0;
  std::uint32_t size = 0;
  std::uint32_t owner = kNoSlot;  // transfer whose notification it is; advances once the record has arrived
  std::uint32_t next = kNoSlot;
  std::array<std::byte, kRecordBytes> bytes;
  [[nodiscard]] RecordType type() const { return static_cast<RecordType>(bytes[kRecordHeader - 1]); }
};

// Buffers of a worker's records. Grows to the largest number in flight so far, and never shrinks. Owner: the worker.
class RecordPool {
 public:
  std::uint32_t acquire() {
    if (free_.empty()) {
      records_.push_back(std::make_unique<Record>());
      return static_cast<std::uint32_t>(records_.size() - 1);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void release(std::uint32_t index) {
    records_[index]->owner = kNoSlot;
    free_.push_back(index);
  }
  Record& operator[](std::uint32_t index) { return *records_[index]; }

 private:
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<std::uint32_t> free_;
};

// Both directions of one peer's records: sequence numbers, send window, retransmission, duplicates. Knows no link and
// no transport. Owner: the peer's worker.
class RecordStream {
 public:
  // Both sides of a stream begin with the same number; they wrap around.
  explicit RecordStream(RecordPool& pool, std::uint32_t first = 0)
      : pool_(&pool), next_sequence_(first), oldest_(first), expected_(first) {}

  // Sending. enqueue() numbers the record; next() is the one to post now, kNoSlot when there is none or the window is
  // full.
  void enqueue(std::uint32_t record);
  [[nodiscard]] std::uint32_t next() const;
  void posted(std::uint32_t record);      // next() was handed to a link
  void arrived(std::uint32_t record);     // frees its buffer
  void send_again(std::uint32_t record);  // it did not arrive: its link's epoch is closed on both ends
  [[nodiscard]] std::uint32_t waiting() const { return waiting_; }
  void clear();  // the peer is gone
  // Of one that no buffer holds: its number, and that it has arrived. Only where nothing waits and the window has room.
  [[nodiscard]] bool takes_one_now() const { return waiting_ == 0 && next_sequence_ - oldest_ < kRecordWindow; }
  [[nodiscard]] std::uint32_t next_number() const { return next_sequence_; }
  void sent_now();

  // Receiving. What to do with a record of that number: take it, drop a duplicate, or end the session (violation).
  enum class Verdict : std::uint8_t { take, duplicate, violation };
  Verdict accept(std::uint32_t sequence);
  // What became of a record of that number. beyond: the peer cannot have sent it yet.
  enum class Past : std::uint8_t { taken, to_come, beyond };
  [[nodiscard]] Past past(std::uint32_t sequence) const;
  // The number with these lower 30 bits that is nearest to the current ones.
  [[nodiscard]] std::uint32_t nearest(std::uint32_t low) const;

 private:
  struct Fifo {
    std::uint32_t head = kNoSlot;
    std::uint32_t tail = kNoSlot;
  };
  void arrived_as(std::uint32_t sequence);
  void push(Fifo& fifo, std::uint32_t record);
  std::uint32_t pop(Fifo& fifo);

  RecordPool* pool_;
  Fifo again_;  // sent before, first in line
  Fifo fresh_;
  std::uint32_t waiting_ = 0;
  std::uint32_t next_sequence_ = 0;
  std::uint32_t oldest_ = 0;    // lowest number not known to have arrived
  std::uint64_t arrived_ = 0;   // bit i: oldest_ + i has arrived
  std::uint32_t expected_ = 0;  // lowest number not received
  // By number modulo its size, from expected_ on. Made when a record first overtakes another: 1 KiB, which a peer with
  // one link never needs.
  std::unique_ptr<std::bitset<8192>> received_;
};

// Encodes and decodes records. Nothing else knows a record's layout.

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
