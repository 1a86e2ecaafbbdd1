#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fairway/status.h"

namespace fairway::transport::fabric {

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
