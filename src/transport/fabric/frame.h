#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fairway/status.h"

#include "core/bytes.h"
#include "transport/transport.h"

// The frames between two endpoints, besides libfabric's writes and reads: docs/wire-format-fabric.md. Pure.
namespace fairway::transport::fabric {

struct FrameHeader {
  enum class Kind : std::uint32_t { messages, credits, immediate };
  static constexpr std::size_t kBytes = 16;
  std::uint32_t credits = 0;  // credit update: the total
  Kind kind = Kind::messages;
  // Immediate: its value. Messages: their number, each after its length (u16). Credits: 1 asks for an update.
  std::uint32_t value = 0;
  std::uint32_t before = 0;  // frames of messages and immediates that this end has sent before
};
inline constexpr std::size_t kLengthBytes = 2;
inline constexpr std::size_t kFrameBytes = FrameHeader::kBytes + kLengthBytes + kMessageBytes;
inline constexpr std::uint32_t kMostJoined = 16;  // messages of one frame

// Writes a message with its length before it.
inline void put_message(std::byte* at, std::span<const std::byte> message) {
  ByteWriter({at, kLengthBytes + message.size()}).put_sized(message);
}

// Calls `take` for each of `count` messages. False: malformed; then `take` was not called.
template <class Take>
bool take_messages(std::span<const std::byte> bytes, std::uint32_t count, Take take) {
  if (count == 0 || count > kMostJoined) return false;
  ByteReader looked(bytes);
  for (std::uint32_t i = 0; i < count; ++i) static_cast<void>(looked.get_sized());
  if (!looked.done()) return false;
  ByteReader reader(bytes);
  for (std::uint32_t i = 0; i < count; ++i) take(reader.get_sized());
  return true;
}

// The notes (planned_handshake.h) of two fabric transports. A value.
struct Note {
  enum class Kind : std::uint8_t {
    revoke = 1,  // the sender deregisters its region: post nothing more to it, and answer when nothing is in flight
    revoked,     // the answer
    ask_key,     // asks for the key of the receiver's region for that link (FI_MR_ENDPOINT)
    key          // the answer; present: whether there is one
  } kind = Kind::revoke;
  std::uint64_t region = 0;  // handle_of() its id
  std::uint16_t link = 0;    // ask_key, key: its index in the session, and the attempt
  std::uint32_t attempt = 0;
  bool present = false;
  std::uint64_t key = 0;
};

std::vector<std::byte> encode(const Note& note);
Result<Note> decode_note(std::span<const std::byte> bytes);

}  // namespace fairway::transport::fabric
