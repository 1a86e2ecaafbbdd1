#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fairway/collectives.h"

#include "collectives/host/sleep_word.h"

// What ranks write into each other's memory: little-endian structs of fixed layout, between processes of one version.
namespace fairway::collectives {

constexpr std::uint64_t kMagic = 0x38304c4c4f435746;  // "FWCOLL08"

// The call that a message belongs to: in front of the messages that the engine writes. Pieces behind the first of a
// block may lack it.
struct Header {
  std::uint64_t operation = 0;  // its number
  std::uint64_t count = 0;
  std::uint64_t of = 0;  // bytes of the whole of which this is a piece
  std::uint32_t bytes = 0;
  std::int32_t root = 0;
  CollectiveKind kind = CollectiveKind::barrier;
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::uint32_t element_bytes = 0;
  std::uint8_t ordered = 0;  // Collective::reproducible
  std::uint8_t local = 0;    // Collective::local_completion
  std::uint8_t unused[6] = {};
  std::uint64_t reserved[2] = {};
};
constexpr std::uint64_t kHeaderBytes = sizeof(Header);
static_assert(kHeaderBytes == 64);
using HeaderWords = std::array<std::uint64_t, kHeaderBytes / sizeof(std::uint64_t)>;  // the same bytes

// At the start of a rank's zone, for the others to read: who it is and how far it has come.
struct Words {
  std::uint64_t magic = 0;
  std::uint32_t rank = 0, size = 0;
  std::uint32_t slot_bytes = 0, first_immediate = 0;
  std::uint64_t operation = 0;          // the newest that it has entered
  std::uint64_t steps = 0;              // grows while the rank is in a call
  std::int32_t waits_for = -1;          // rank
  std::uint16_t ways = 0;               // of reaching others through memory: choose.h
  std::int16_t node = -1;               // NUMA node that its process is held to; -1: none
  std::uint64_t host = 0, process = 0;  // which; equal on equal ones
  std::uint32_t cpus = 0, cpu_set = 0;  // that it may use: how many, and which; equal on equal ones
};
static_assert(sizeof(Words) == 72);

// Stores a word that others read at any time, over any transport: whole, and in no order with those reads, which
// ThreadSanitizer would miss. Clang's no_sanitize leaves it atomics, and what is inlined.
#if defined(__clang__) && defined(__SANITIZE_THREAD__)
#define FAIRWAY_UNSEEN __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define FAIRWAY_UNSEEN __attribute__((no_sanitize("thread")))
#endif
template <class T>
FAIRWAY_UNSEEN void tell(T& word, std::type_identity_t<T> value) {
  __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}
#undef FAIRWAY_UNSEEN

constexpr std::uint32_t kCalls = 16;

// A rank's zone: this head, then a block for each other rank. A block: the count of messages taken, then slots.
struct ZoneHead {
  Words words;
  alignas(64) SleepWord sleep;  // of ranks whose zones are mapped
  // Of the newest calls that the rank has entered, by number, where zones are mapped: for a rank that gets a message
  // of another call. With local completion a rank runs ahead of those that take its messages.
  alignas(64) HeaderWords calls[kCalls];
};
constexpr std::uint64_t kZoneHead = 4096;  // bytes
static_assert(sizeof(ZoneHead) <= kZoneHead);

constexpr std::uint32_t kSlots = 8;      // of each pair and direction
constexpr std::uint64_t kPairHead = 64;  // the receiver's word: how many messages it has taken, if zones are mapped

// At the start of a slot. A sender that has mapped it stores all of it, `sequence` last; the engine writes a Header
// behind it instead. Then comes the payload, of which a little goes into the front: one cache line moves then.
constexpr std::uint64_t kInFront = 40;
struct Front {
  std::atomic<std::uint64_t> sequence{0};  // the message's number, from 1
  std::uint64_t digest = 0;                // of the call
  std::uint64_t of = 0;                    // as in Header
  std::byte bytes[kInFront] = {};
};
static_assert(sizeof(Front) == 64);
constexpr std::uint64_t kSlotHead = sizeof(Front) + sizeof(Header);

// Calls that differ have digests that differ, but for one in 2^64. `of` and `bytes` are no part of the call.
inline std::uint64_t digest_of(const Header& call) {
  const std::uint64_t words[] = {
      call.operation, call.count, std::uint64_t{static_cast<std::uint32_t>(call.root)} << 32 | call.element_bytes,
      std::uint64_t{call.local} << 40 | std::uint64_t{call.ordered} << 32 |
          std::uint64_t{static_cast<std::uint8_t>(call.kind)} << 24 |
          std::uint64_t{static_cast<std::uint8_t>(call.type)} << 16 |
          std::uint64_t{static_cast<std::uint8_t>(call.reduction)} << 8 | static_cast<std::uint8_t>(call.algorithm)};
  std::uint64_t hash = 0;
  for (const std::uint64_t word : words) {  // the finalizer of MurmurHash3
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace fairway::collectives
