#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "transport/host/segment.h"

// What two shm transports say to each other before and beside the ring.
namespace fairway::transport::host {

using Token = std::array<std::byte, kNonceBytes>;

// Through control, authenticated:
//   initiator -> acceptor   hello
//   acceptor -> initiator   offer: the name of a local socket, and what each will say there to show who it is
//   either way              refused: why there will be no link
struct Handshake {
  enum class Kind : std::uint8_t { hello = 1, offer, refused } kind = Kind::hello;
  std::string socket;
  Token dialer{}, listener{};
  std::string reason;
};
std::vector<std::byte> encode(const Handshake& message);
// version_mismatch, or protocol_error for anything that encode() of this version cannot have written.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

// On the local socket, with descriptors:
//   dialer -> listener    hello: the segment, its region table
//   listener -> dialer    welcome: its region table; or refused: why not
//   either way            ask: for a file of the other's; file, no_file: the answer; forget: no region is in it any
//   more; recall: give back what your kernels reach it by; ring: look at the ring, where you sleep
struct Note {
  enum class Kind : std::uint8_t {
    hello = 1,
    welcome,
    ask,
    file,
    no_file,
    forget,
    recall,
    ring,
    refused
  } kind = Kind::ask;
  Token token{};               // hello, welcome: who speaks
  std::uint32_t attempt = 0;   // hello, welcome
  std::uint32_t regions = 0;   // hello, welcome: slots of its table
  std::uint64_t nonce_at = 0;  // hello, welcome: where the segment's nonce lies in its memory
  std::uint32_t file = 0;      // ask and its answers, forget: the owner's number of it
  bool writable = false;       // ask and its answers
  std::uint32_t part = 0;      // the same: which descriptor, of memory that has several
  std::string reason;          // no_file, refused
  RegionId region;             // recall

  static constexpr std::size_t kHelloFds = 2, kWelcomeFds = 1;
};
inline constexpr std::array<std::byte, 3> kRing{std::byte{kVersion & 0xff}, std::byte{kVersion >> 8},
                                                std::byte{static_cast<std::uint8_t>(Note::Kind::ring)}};
std::vector<std::byte> encode(const Note& note);
Result<Note> decode_note(std::span<const std::byte> bytes);

// The key of a region that lies in a file, or in a device's allocation; others have none.
struct Key {
  std::uint32_t file = 0;         // the owner's number of it, not used again
  std::uint64_t offset = 0;       // of the region in it
  std::vector<std::byte> handle;  // of a device's allocation, for its driver; empty: a memory file
};
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

}  // namespace fairway::transport::host
