#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/ids.h"

// Records: the engines' own small messages to each other. This header has their types, and the fields that are more
// than a number; record_body.h has the fields of each record.
namespace fairway::engine {

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
  stage_ask,          // staging/lease.h: lend me a staging buffer
  stage_grant,        // here it is, or why not
  stage_recall,       // another wants it
  stage_end,          // I use it no more
  stage_put,          // copy from its slot into your memory
  stage_get,          // copy from your memory into its slot
  stage_done,         // of either
  send_armed,         // the bytes are under way; their write's immediate, which names this record, says that they came
  receive_posted,     // a receive that waits, and its window: write there
  receive_withdrawn,  // do not
  send_direct,        // a send whose bytes go into such a window; for the rest as send_armed
};

// Records that answer a peer's record. They are counted, so that a peer that asks without reading answers is
// disconnected.
constexpr bool is_answer(RecordType type) {
  return type == RecordType::reply || type == RecordType::stage_grant || type == RecordType::stage_recall ||
         type == RecordType::stage_done;
}

inline constexpr std::size_t kMostParts = 256;  // blocks of a layout in one slot of a staging buffer

// ---- fields that are more than a number ----

struct Tail {  // all that is left of the record
  std::span<const std::byte> bytes;
};
struct Sized {  // bytes behind their 16-bit length
  std::span<const std::byte> bytes;
};
struct StagePart {
  std::uint64_t offset = 0;  // in the region
  std::uint32_t length = 0;
};
struct StageParts {  // behind their 16-bit count; more than kMostParts are malformed
  std::array<StagePart, kMostParts> all;
  std::uint16_t count = 0;
};
struct StageCopy {
  std::uint32_t number = 0;
  std::uint8_t slot = 0;
  RegionId region;  // the receiver's
  StageParts parts;
};
struct RequestHead {                    // of put, get, atomic, sum, flush
  std::uint32_t token = 0, serial = 0;  // the reply repeats them
  RegionId region;                      // the receiver's
};

}  // namespace fairway::engine
