#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fairway/ids.h"

#include "core/atomics.h"

// The memory that two processes share for one epoch of a link, as it lies there. Each word says who writes it; the
// other side may be hostile and write any of it at any time, so what is read is copied out, then checked.
namespace fairway::transport::host {

inline constexpr std::uint16_t kVersion = 6;
inline constexpr std::size_t kNonceBytes = 16;
inline constexpr std::uint32_t kCells = 256;
inline constexpr std::uint32_t kDataBytes = 128 * 1024;
inline constexpr std::uint32_t kMaxPiece = 4096;  // of one put or get
// Answers always find room: who sends anything else leaves as much as the answers to all its peer may ask need.
inline constexpr std::uint32_t kMaxRequests = 16;  // unanswered, in each direction
inline constexpr std::uint32_t kHolds = 512;       // of the other side's regions, by kernels

enum class RecordType : std::uint8_t {
  immediate = 1,
  message,       // payload: its bytes
  put,           // region, offset; payload: bytes to write there
  get,           // region, offset, length: bytes to send
  fetch_add,     // region, offset, operand
  compare_swap,  // region, offset, operand, expected
  answer,        // code; value: an atomic's old value; payload: of a get
  nudge,         // look at the local socket
};

struct Record {
  RecordType type = RecordType::nudge;
  std::uint8_t code = 0;  // an ErrorCode
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;
  std::uint32_t payload = 0;  // where its bytes lie, free-running
  RegionId region;
  std::uint64_t offset = 0;
  std::uint64_t value = 0;  // operand, or old value
  std::uint64_t expected = 0;
};

struct alignas(kCacheLine) Cell {
  std::atomic<std::uint32_t> stamp{0};  // its place in the sequence + 1 once the record is whole
  Record record;
};
static_assert(sizeof(Cell) == kCacheLine);

// From its writer to its reader. Positions run freely; a cell's place is the position modulo kCells.
struct Direction {
  std::array<Cell, kCells> cells;                           // writer
  alignas(kCacheLine) std::atomic<std::uint32_t> freed{0};  // reader: cells before it are free again
  std::atomic<std::uint32_t> freed_bytes{0};                // reader: and so is data before it
  std::atomic<std::uint32_t> wants_room{0};                 // writer sets it, seldom; reader takes it and rings
  // Writer: odd while it may touch the reader's memory (Touch in pair.h).
  alignas(kCacheLine) std::atomic<std::uint64_t> touching{0};
  // Writer: copies it left to a device in such a time, and of those, in order, the ones that are over.
  std::atomic<std::uint64_t> queued{0}, over{0};
  // Writer: regions that kernels of its reach by themselves, a place each; 0: none. Set in such a time too.
  std::array<std::atomic<std::uint64_t>, kHolds> holds{};
  alignas(kCacheLine) std::array<std::byte, kDataBytes> data;
};

struct Segment {
  std::array<std::byte, kNonceBytes> nonce{};  // who can read it shares this memory
  std::array<Direction, 2> directions;         // by writer: 0 made the segment, 1 joined
  struct alignas(kCacheLine) End {
    std::atomic<std::uint32_t> asleep{0};  // its own side sets it; who rings takes it
    std::atomic<std::uint32_t> closed{0};  // this end has closed the epoch
  };
  std::array<End, 2> ends;
};

}  // namespace fairway::transport::host
