#pragma once

#include "fairway/status.h"

#include "engine/messages/record_types.h"

// The fields of each record, in the order of the wire (docs/wire-format-engine.md). `each` lists them once, for
// encoding and decoding (record_codec.h).
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
