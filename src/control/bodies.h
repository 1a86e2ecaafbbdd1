#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "control/frame.h"
#include "core/bytes.h"

// The bodies of the control frames that two engines exchange: one struct, one writer and one parser each.
// Anyone with the job's key can send any bytes, so a parser checks every field and accepts no bytes left over.
namespace fairway::control {

inline constexpr std::size_t kMaxName = 255;
inline constexpr std::size_t kMaxReason = 512;

enum class Intent : std::uint8_t {
  none = 0,       // sent by a listener, which only identifies itself
  connect = 1,    // open a new session
  resume = 2,     // resume a session whose connection broke
  directory = 3,  // look up and publish names
};

struct Identity {
  static constexpr FrameType kType = FrameType::identity;
  std::uint64_t incarnation = 0;
  std::uint64_t session = 0;     // chosen by the dialer that proposed the session; 0 from a listener
  std::uint64_t received = 0;    // resume: sequence number of the last message received
  std::uint64_t stamp = 0;       // rises with every session proposed or accepted here: orders frames by age
  std::uint32_t timeout_ms = 0;  // the sender declares a peer dead after this long without a valid frame from it
  Intent intent = Intent::none;
  bool by_caller = false;  // the application drives the sender's progress: it makes none while the application computes
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

// Why a connection or a session ends. Wire values: a number is never reused for another meaning.
enum class Reason : std::uint8_t {
  closed = 1,          // orderly, by the engine or its user
  stale = 2,           // the sender declared this session dead, or never had it
  crossed = 3,         // both sides dialed at once; the other connection is kept
  full = 4,            // the sender has max_peers sessions
  protocol_error = 5,  // the receiver sent something malformed
  no_directory = 6,    // the sender serves no directory
};

template <FrameType kFrame>
struct Ending {
  static constexpr FrameType kType = kFrame;
  Reason reason = Reason::closed;
  std::string text;

  void write(ByteWriter& out) const;
  static Result<Ending> read(std::span<const std::byte> body);
};
using Refuse = Ending<FrameType::refuse>;    // of a connection, instead of an acceptance
using Goodbye = Ending<FrameType::goodbye>;  // of a session

// A message of the engine. `bytes` is borrowed from the frame.
struct Message {
  static constexpr FrameType kType = FrameType::message;
  std::uint64_t sequence = 0;  // starts at 1, without gaps
  std::uint64_t ack = 0;       // sequence number of the last message received from the other side
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
