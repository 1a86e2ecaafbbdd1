#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/ids.h"

#include "core/atomics.h"

// The layout of the memory that two processes share for one epoch of a link. Comments say which side writes a field.
// The peer may be hostile and write anything at any time, so fields are copied out first and then checked.
namespace fairway::transport::host {

inline constexpr std::uint16_t kVersion = 8;
inline constexpr std::size_t kNonceBytes = 16;
inline constexpr std::uint32_t kCells = 256;
inline constexpr std::uint32_t kDataBytes = 128 * 1024;
inline constexpr std::uint32_t kMaxPiece = 4096;  // of one put or get
// Answers always find room: other records leave enough free for the answers to all requests that the peer may send.
inline constexpr std::uint32_t kMaxRequests = 16;  // unanswered, in each direction
inline constexpr std::uint32_t kInlineBytes = 48;  // of a message that lies in its record
inline constexpr std::uint32_t kHolds = 512;       // views of the other side's regions

enum class RecordType : std::uint8_t {
  immediate = 1,
  message,       // payload: its bytes; or code kInline: they are in the record, from `immediate` on
  put,           // region, offset; payload: bytes to write there
  get,           // region, offset, length: bytes to send
  fetch_add,     // region, offset, operand
  compare_swap,  // region, offset, operand, expected
  answer,        // code; value: an atomic's old value; payload: of a get
  nudge,         // read the local socket
};

struct Record {
  RecordType type = RecordType::nudge;
  std::uint8_t code = 0;  // an ErrorCode
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;
  std::uint32_t payload = 0;  // position of its bytes in `data`, free-running
  RegionId region;
  std::uint64_t offset = 0;
  std::uint64_t value = 0;  // operand, or old value
  std::uint64_t expected = 0;
  std::uint64_t unused = 0;

  static constexpr std::uint8_t kInline = 0xff;
  std::byte* inlined() { return reinterpret_cast<std::byte*>(this) + offsetof(Record, immediate); }
  [[nodiscard]] const std::byte* inlined() const {
    return reinterpret_cast<const std::byte*>(this) + offsetof(Record, immediate);
  }
  [[nodiscard]] bool has_payload() const {  // in Direction::data
    return (type == RecordType::message && code != kInline) || type == RecordType::put ||
           (type == RecordType::answer && length != 0);
  }
};
static_assert(sizeof(Record) - offsetof(Record, immediate) == kInlineBytes);

struct alignas(kCacheLine) Cell {
  std::atomic<std::uint32_t> stamp{0};  // position + 1 once the record is complete
  Record record;
};
static_assert(sizeof(Cell) == kCacheLine);

// One direction of the ring. Positions are free-running; a cell's index is its position modulo kCells.
struct Direction {
  std::array<Cell, kCells> cells;                           // writer
  alignas(kCacheLine) std::atomic<std::uint32_t> freed{0};  // reader: cells before this position are free
  std::atomic<std::uint32_t> freed_bytes{0};                // reader: data before this position is free
  std::atomic<std::uint32_t> wants_space{0};  // set by the writer (rare), cleared by the reader, who rings
  // Writer: odd while it may access the reader's memory (Touch in lane.h).
  alignas(kCacheLine) std::atomic<std::uint64_t> touching{0};
  // Writer: batches of copies that it queued on a device during touches, and how many of them are over, in order.
  std::atomic<std::uint64_t> queued{0}, over{0};
  // Writer: regions of which its kernels have views, one per slot; 0: none. Set during a touch. Those from holds_end on
  // were never set, so that a reader need not look there: most have none.
  std::atomic<std::uint32_t> holds_end{0};
  std::array<std::atomic<std::uint64_t>, kHolds> holds{};
  alignas(kCacheLine) std::array<std::byte, kDataBytes> data;
};

struct Segment {
  std::array<std::byte, kNonceBytes> nonce{};  // reading it proves that a process shares this memory
  std::array<Direction, 2> directions;         // by writer: 0 made the segment, 1 joined
  struct alignas(kCacheLine) End {
    std::atomic<std::uint32_t> asleep{0};  // set by this end; cleared by the one that rings
    std::atomic<std::uint32_t> closed{0};  // set by this end: it has closed the epoch
  };
  std::array<End, 2> ends;
};

// The writing end of a Direction. Owner: the worker.
class RingWriter {
 public:
  // `cells`, `bytes`: as if so many had been written and freed, so that a test need not write them.
  explicit RingWriter(Direction& to, std::uint32_t cells = 0, std::uint32_t bytes = 0)
      : to_(to), next_(cells), data_(bytes), freed_(cells), freed_bytes_(bytes) {}

  // Contiguous space for a record's payload; push() publishes both. Null: no room now.
  std::byte* payload(std::uint32_t size, bool answer);
  bool has_space() { return fits(1 + kMaxRequests, 0); }  // for one record without a payload; false as of push()
  // False: no room now; the reader rings once there is room.
  bool push(const Record& record, bool answer = false);
  // A message that lies in its record: at most kInlineBytes of `head` and `tail`, written straight into the cell.
  bool push_inlined(std::span<const std::byte> head, std::span<const std::byte> tail);
  bool push_immediate(std::uint32_t immediate);  // likewise; of the record nothing else is written
  // A hint: a record follows soon. The reader looks at its place all the time, so it has to be fetched from there.
  void expect() const { prefetch_to_write(&to_.cells[next_ % kCells]); }

 private:
  bool fits(std::uint32_t cells, std::uint32_t bytes);
  void publish(Cell& cell);
  Direction& to_;
  std::uint32_t next_, data_;          // free-running
  std::uint32_t payload_at_ = 0;       // of the payload that waits for push()
  std::uint32_t freed_, freed_bytes_;  // as last read
};

// The reading end of a Direction. Owner: the worker.
class RingReader {
 public:
  explicit RingReader(Direction& from, std::uint32_t cells = 0, std::uint32_t bytes = 0)  // as the writer's
      : from_(from), next_(cells), data_(bytes), freed_(cells), freed_bytes_(bytes) {}

  [[nodiscard]] bool empty() const {
    return malformed_ || from_.cells[next_ % kCells].stamp.load(std::memory_order_seq_cst) != next_ + 1;
  }
  // Copies the next record out. False: none. `payload` is readable until free(), and as
  // long as `record`; a hostile peer may still change it.
  bool pop(Record& record, std::span<const std::byte>& payload);
  // Call it after some pops. Frees the popped records, messages and immediates some together; an answer at once, since
  // the next request counts on its room. True: the writer waits for that, so ring.
  bool free();
  [[nodiscard]] bool malformed() const { return malformed_; }

 private:
  Direction& from_;
  std::uint32_t next_;
  std::uint32_t data_;  // end of the popped payloads
  std::uint32_t freed_, freed_bytes_;
  bool answers_ = false;    // one was popped and not freed
  bool malformed_ = false;  // a record that no RingWriter writes
};

}  // namespace fairway::transport::host
