#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "control/frame.h"
#include "core/bytes.h"

// The bodies of the frames between two engines: one struct, one writer and one parser each. Parsers take bytes that
// anyone with the job's key may have made: each field is checked, and nothing may be left over.
namespace fairway::control {

inline constexpr std::size_t kMaxName = 255;
inline constexpr std::size_t kMaxReason = 512;

enum class Intent : std::uint8_t {
  none = 0,       // a listener, which only says who it is
  connect = 1,    // a new session
  resume = 2,     // a session whose connection broke
  directory = 3,  // lookups and publications
};

struct Identity {
  static constexpr FrameType kType = FrameType::identity;
  std::uint64_t incarnation = 0;
  std::uint64_t session = 0;     // chosen by the dialer that made it; 0 from a listener
  std::uint64_t received = 0;    // resume: the last message that arrived
  std::uint64_t stamp = 0;       // grows with everything that one engine proposes or accepts: tells late from new
  std::uint32_t timeout_ms = 0;  // after so long without a sign of life the sender gives a peer up
  Intent intent = Intent::none;
  bool by_caller = false;  // the sender's engine is stepped by its caller: while that one computes it takes nothing
  std::string name;
  std::string address;

  void write(ByteWriter& out) const;
  static Result<Identity> read(std::span<const std::byte> body);
};

struct Accept {
  static constexpr FrameType kType = FrameType::accept;
  std::uint64_t session = 0;
  std::uint64_t received = 0;
  std::uint64_t stamp = 0;

  void write(ByteWriter& out) const;
  static Result<Accept> read(std::span<const std::byte> body);
};

// Why a connection or a session ends; numbers of the wire, never used again for something else.
enum class Reason : std::uint8_t {
  closed = 1,          // in order, by the engine or its user
  stale = 2,           // the sender declared this session dead, or never knew it
  crossed = 3,         // both sides dialed; the other connection is the one
  full = 4,            // max_peers
  protocol_error = 5,  // the receiver sent something malformed
  no_directory = 6,    // this engine serves none
};

struct Refuse {
  static constexpr FrameType kType = FrameType::refuse;
  Reason reason = Reason::closed;
  std::string text;

  void write(ByteWriter& out) const;
  static Result<Refuse> read(std::span<const std::byte> body);
};

struct Goodbye {
  static constexpr FrameType kType = FrameType::goodbye;
  Reason reason = Reason::closed;
  std::string text;

  void write(ByteWriter& out) const;
  static Result<Goodbye> read(std::span<const std::byte> body);
};

// A message of the engine. The bytes are borrowed.
struct Message {
  static constexpr FrameType kType = FrameType::message;
  std::uint64_t sequence = 0;  // from 1, without gaps
  std::uint64_t ack = 0;       // the last sequence that arrived from the other side
  std::span<const std::byte> bytes;

  void write(ByteWriter& out) const;
  static Result<Message> read(std::span<const std::byte> body);
};

struct Ack {
  static constexpr FrameType kType = FrameType::ack;
  std::uint64_t ack = 0;

  void write(ByteWriter& out) const;
  static Result<Ack> read(std::span<const std::byte> body);
};

struct Beat {
  static constexpr FrameType kType = FrameType::beat;
  std::uint64_t ack = 0;
  std::uint64_t steps = 0;
  bool queued = false;

  void write(ByteWriter& out) const;
  static Result<Beat> read(std::span<const std::byte> body);
};

}  // namespace fairway::control
