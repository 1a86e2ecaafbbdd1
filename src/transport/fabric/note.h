#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fairway/status.h"

namespace fairway::transport::fabric {

// What two fabric transports say to each other besides the making of links. A value.
struct Note {
  enum class Kind : std::uint8_t {
    revoke = 1,  // the sender ends that region of its own: post nothing more to it, and say when nothing is on its way
    revoked,     // nothing is
    ask_key,     // of the receiver's region, for that link: the provider binds memory to endpoints
    key          // the answer; present: there is one
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
