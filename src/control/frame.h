#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/control.h"
#include "control/handshake.h"
#include "core/bytes.h"

// After the handshake all bytes travel in frames: a header of 8 bytes (body size, type), the body, and an
// authentication tag of 16 bytes. The tag covers the frame's number on this connection, the header and the body, with a
// key of this connection and direction. A frame that was changed, lost, replayed, reordered or reflected ends the
// connection.
namespace fairway::control {

enum class FrameType : std::uint8_t {
  identity = 1,  // who the sender is; from the dialer also what it wants
  accept = 2,
  refuse = 3,
  message = 4,  // a message of the engine
  ack = 5,
  beat = 6,
  goodbye = 7,
  publish = 8,  // from here on: frames to and from a directory server
  withdraw = 9,
  lookup = 10,
  answer = 11,
};

inline constexpr std::size_t kHeaderSize = 8;
inline constexpr std::size_t kTagSize = 16;
inline constexpr std::size_t kMaxBody = kMaxMessage + 64;

struct Frame {
  FrameType type{};
  std::span<const std::byte> body;
};

// The sending side of one direction of one connection. A value.
class Sealer {
 public:
  explicit Sealer(const Mac& key) : key_(key) {}
  // Appends one frame to `out`. Error: system_error when OpenSSL cannot compute the tag.
  Status seal(Hmac& hmac, FrameType type, std::span<const std::byte> body, std::vector<std::byte>& out);

 private:
  Mac key_;
  std::uint64_t sent_ = 0;
};

// The receiving side of one direction of one connection. A value.
class Opener {
 public:
  explicit Opener(const Mac& key) : key_(key) {}
  // Returns the first frame in `in` and sets `used` to the bytes it took; nothing while the frame is incomplete. After
  // an error the connection cannot continue.
  Result<std::optional<Frame>> open(Hmac& hmac, std::span<const std::byte> in, std::size_t& used);

 private:
  Mac key_;
  std::uint64_t received_ = 0;
};

// The bodies of the control frames that two engines exchange: one struct, one writer and one parser each.
// Anyone with the job's key can send any bytes, so a parser checks every field and accepts no bytes left over.

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

// The bodies of the frames between an engine and its directory server, by the same rules.

struct Publish {
  static constexpr FrameType kType = FrameType::publish;
  std::uint64_t id = 0;
  std::string record;

  void write(ByteWriter& out) const;
  static Result<Publish> read(std::span<const std::byte> body);
};

struct Withdraw {
  static constexpr FrameType kType = FrameType::withdraw;
  std::uint64_t id = 0;
  std::string name;
  std::string started;

  void write(ByteWriter& out) const;
  static Result<Withdraw> read(std::span<const std::byte> body);
};

struct Lookup {
  static constexpr FrameType kType = FrameType::lookup;
  std::uint64_t id = 0;
  std::string name;

  void write(ByteWriter& out) const;
  static Result<Lookup> read(std::span<const std::byte> body);
};

// Wire values.
enum class Verdict : std::uint8_t { done = 0, absent = 1, taken = 2, refused = 3 };

struct Answer {
  static constexpr FrameType kType = FrameType::answer;
  std::uint64_t id = 0;
  Verdict verdict = Verdict::done;
  std::string bytes;  // the record, or the reason for refusing

  void write(ByteWriter& out) const;
  static Result<Answer> read(std::span<const std::byte> body);
};

}  // namespace fairway::control
