#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "engine/messages/record_types.h"
#include "engine/transfers/transfer.h"
#include "transport/transport.h"

// Records (record_types.h) are carried by any link that carries messages. A stream of them per peer and direction is
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

}  // namespace fairway::engine
