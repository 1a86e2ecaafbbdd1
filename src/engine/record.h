#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "engine/transfer.h"
#include "transport/device.h"

// Records: the engines' own small messages to each other, carried by any link that carries messages. A stream of them
// per peer and direction is delivered exactly once, in any order, also across links that break: docs/wire-format.md has
// the layout of each type.
namespace fairway::engine {

inline constexpr std::size_t kRecordBytes = transport::kMessageBytes;  // header and body
inline constexpr std::size_t kRecordHeader = 5;                        // sequence, type
inline constexpr std::uint32_t kRecordWindow = 64;  // sent and not yet known to have arrived, per peer
// How far a record may be ahead of the lowest one that the receiver has looked at. A record has arrived once it waits
// at its link; with many links others overtake it there, as many as one poll of every other link brings.
inline constexpr std::uint32_t kReorderWindow = 8192 - kRecordWindow;

enum class RecordType : std::uint8_t {
  event = 1,
  counter,
  credit,
  send_eager,
  send_announce,
  send_clear,
  send_written,
  send_abort,
  send_done,
  put,
  get,
  atomic,
  sum,
  flush,
  reply,
  echo,
  echo_reply,   // of a link's proof: tied to that link, so neither numbered, resent nor deduplicated
  event_armed,  // armed_events.h
  event_set_off,
  event_given_up,
  stage_ask,     // staging.h: lend me a room
  stage_grant,   // here it is, or why not
  stage_recall,  // another wants it
  stage_end,     // I use it no more
  stage_put,     // copy from its slot into your memory
  stage_get,     // copy from your memory into its slot
  stage_done,    // of either
};

// What a peer's record makes this side send: counted, so that a peer that asks and takes no answers is cut off.
constexpr bool is_answer(RecordType type) {
  return type == RecordType::reply || type == RecordType::stage_grant || type == RecordType::stage_recall ||
         type == RecordType::stage_done;
}

enum : std::uint8_t { kAdd = 0, kCompareSwap = 1, kSet = 2 };  // an atomic's kind, in its record

struct Record {
  std::uint32_t sequence = 0;
  std::uint32_t size = 0;
  std::uint32_t owner = kNoSlot;  // transfer whose notification it is; advances once the record has arrived
  std::uint32_t next = kNoSlot;
  std::array<std::byte, kRecordBytes> bytes;
  [[nodiscard]] RecordType type() const { return static_cast<RecordType>(bytes[kRecordHeader - 1]); }
};

// Buffers of a worker's records; grows to what is in flight at most, never shrinks. Owner: the worker.
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

// Both directions of one peer's records: numbers, window, order of sending, duplicates. Knows no link and no transport.
// Owner: the peer's worker.
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

  // Receiving. What to do with a record of that number: take it, drop a duplicate, or refuse a peer that lies.
  enum class Verdict : std::uint8_t { take, duplicate, violation };
  Verdict accept(std::uint32_t sequence);
  // What became of a record of that number. beyond: no honest peer has sent it yet.
  enum class Past : std::uint8_t { taken, to_come, beyond };
  [[nodiscard]] Past past(std::uint32_t sequence) const;
  // The number nearest to the present ones with these lower 30 bits.
  [[nodiscard]] std::uint32_t nearest(std::uint32_t low) const;

 private:
  struct Fifo {
    std::uint32_t head = kNoSlot;
    std::uint32_t tail = kNoSlot;
  };
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
  std::bitset<8192> received_;  // by number modulo its size, from expected_ on
};

// Fills a record's header; the body follows.
inline ByteWriter compose(Record& record, RecordType type) {
  ByteWriter writer(record.bytes);
  writer.put(std::uint32_t{0}).put(static_cast<std::uint8_t>(type));
  return writer;
}

}  // namespace fairway::engine
