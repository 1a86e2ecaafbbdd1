#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/ids.h"
#include "fairway/status.h"

// Records: the engines' own small messages to each other. First their types, and the fields that are more than a
// number; then the fields of each record.
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
  event_armed,  // notifier.h
  event_set_off,
  event_given_up,
  stage_ask,          // staging/pool.h: lend me a staging buffer
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

// The fields of each record, in the order of the wire (docs/wire-format-engine.md). `each` lists them once, for
// encoding and decoding (record.h).
namespace fairway::engine::record {

template <RecordType type>
struct Notification {
  static constexpr RecordType kType = type;
  std::uint32_t immediate = 0;
  Tail message;
  static void each(auto& body, auto& field) { field(body.immediate, body.message); }
};
using Event = Notification<RecordType::event>;
using EventArmed = Notification<RecordType::event_armed>;

template <RecordType type>
struct Number {
  static constexpr RecordType kType = type;
  std::uint32_t value = 0;
  static void each(auto& body, auto& field) { field(body.value); }
};
using Counter = Number<RecordType::counter>;                     // the immediate
using Credit = Number<RecordType::credit>;                       // events consumed, in all
using EventSetOff = Number<RecordType::event_set_off>;           // the record that armed it
using EventGivenUp = Number<RecordType::event_given_up>;         // likewise
using ReceiveWithdrawn = Number<RecordType::receive_withdrawn>;  // of its receive_posted
using StageAsk = Number<RecordType::stage_ask>;                  // a lease's number among those of the session
using StageRecall = Number<RecordType::stage_recall>;
using StageEnd = Number<RecordType::stage_end>;

struct SendEager {
  static constexpr RecordType kType = RecordType::send_eager;
  std::uint32_t sequence = 0;
  std::uint64_t tag = 0;
  TransferId sender;
  Tail payload;
  static void each(auto& body, auto& field) { field(body.sequence, body.tag, body.sender, body.payload); }
};
struct SendAnnounce {
  static constexpr RecordType kType = RecordType::send_announce;
  std::uint32_t sequence = 0;
  std::uint64_t tag = 0;
  TransferId sender;
  std::uint64_t length = 0;
  static void each(auto& body, auto& field) { field(body.sequence, body.tag, body.sender, body.length); }
};
struct SendClear {
  static constexpr RecordType kType = RecordType::send_clear;
  TransferId sender, receiver;
  Sized window;  // its description
  static void each(auto& body, auto& field) { field(body.sender, body.receiver, body.window); }
};
struct SendWritten {
  static constexpr RecordType kType = RecordType::send_written;
  TransferId receiver;
  std::uint64_t length = 0;
  static void each(auto& body, auto& field) { field(body.receiver, body.length); }
};
struct SendArmed {
  static constexpr RecordType kType = RecordType::send_armed;
  TransferId receiver;
  std::uint64_t length = 0;
  static void each(auto& body, auto& field) { field(body.receiver, body.length); }
};
struct ReceivePosted {
  static constexpr RecordType kType = RecordType::receive_posted;
  std::uint64_t tag = 0;
  TransferId receiver;
  std::uint32_t taken = 0;  // sends up to this number were taken, none of them for this receive
  Sized window;             // its description
  static void each(auto& body, auto& field) { field(body.tag, body.receiver, body.taken, body.window); }
};
struct SendDirect {
  static constexpr RecordType kType = RecordType::send_direct;
  std::uint32_t sequence = 0;
  std::uint64_t tag = 0;
  TransferId sender;
  std::uint64_t length = 0;
  TransferId receiver;
  static void each(auto& body, auto& field) { field(body.sequence, body.tag, body.sender, body.length, body.receiver); }
};
struct SendAbort {
  static constexpr RecordType kType = RecordType::send_abort;
  TransferId receiver;
  ErrorCode code = ErrorCode::ok;
  static void each(auto& body, auto& field) { field(body.receiver, body.code); }
};
struct SendDone {
  static constexpr RecordType kType = RecordType::send_done;
  TransferId sender;
  ErrorCode code = ErrorCode::ok;
  std::uint32_t cost = 0;  // room for unexpected messages that is free again
  static void each(auto& body, auto& field) { field(body.sender, body.code, body.cost); }
};

struct Put {
  static constexpr RecordType kType = RecordType::put;
  RequestHead head;
  std::uint64_t offset = 0;
  Tail payload;
  static void each(auto& body, auto& field) { field(body.head, body.offset, body.payload); }
};
struct Get {
  static constexpr RecordType kType = RecordType::get;
  RequestHead head;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  static void each(auto& body, auto& field) { field(body.head, body.offset, body.length); }
};
struct Atomic {
  static constexpr RecordType kType = RecordType::atomic;
  enum : std::uint8_t { kAdd = 0, kCompareSwap = 1, kSet = 2 };
  RequestHead head;
  std::uint64_t offset = 0;
  std::uint8_t operation = kAdd;
  std::uint64_t operand = 0, expected = 0;
  static void each(auto& body, auto& field) {
    field(body.head, body.offset, body.operation, body.operand, body.expected);
  }
};
struct Sum {
  static constexpr RecordType kType = RecordType::sum;
  RequestHead head;
  std::uint64_t offset = 0, length = 0;
  static void each(auto& body, auto& field) { field(body.head, body.offset, body.length); }
};
struct Flush {
  static constexpr RecordType kType = RecordType::flush;
  RequestHead head;
  static void each(auto& body, auto& field) { field(body.head); }
};
struct Reply {
  static constexpr RecordType kType = RecordType::reply;
  std::uint32_t token = 0, serial = 0;
  ErrorCode code = ErrorCode::ok;
  std::uint64_t value = 0;
  Tail data;
  static void each(auto& body, auto& field) { field(body.token, body.serial, body.code, body.value, body.data); }
};

struct Echo {
  static constexpr RecordType kType = RecordType::echo;
  std::uint8_t place = 0;  // of that link's bytes in the scratch region; kMaxLinks: answer with `sent`
  Tail sent;
  static void each(auto& body, auto& field) { field(body.place, body.sent); }
};
struct EchoReply {
  static constexpr RecordType kType = RecordType::echo_reply;
  Tail bytes;
  static void each(auto& body, auto& field) { field(body.bytes); }
};

struct StageGrant {
  static constexpr RecordType kType = RecordType::stage_grant;
  std::uint32_t number = 0;
  ErrorCode code = ErrorCode::ok;
  Sized buffer;  // its description; empty where there is none
  static void each(auto& body, auto& field) { field(body.number, body.code, body.buffer); }
};
template <RecordType type>
struct Copy {
  static constexpr RecordType kType = type;
  StageCopy copy;
  static void each(auto& body, auto& field) { field(body.copy); }
};
using StagePut = Copy<RecordType::stage_put>;
using StageGet = Copy<RecordType::stage_get>;
struct StageDone {
  static constexpr RecordType kType = RecordType::stage_done;
  std::uint32_t number = 0;
  std::uint8_t slot = 0;
  ErrorCode code = ErrorCode::ok;
  static void each(auto& body, auto& field) { field(body.number, body.slot, body.code); }
};

}  // namespace fairway::engine::record
