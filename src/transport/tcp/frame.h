#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/status.h"

#include "transport/transport.h"

// What travels on a lane after its hello: frames of a fixed header and a payload. docs/wire-format-tcp.md has the
// bytes.
namespace fairway::transport::tcp {

inline constexpr std::uint16_t kVersion = 3;
inline constexpr std::size_t kHeaderBytes = 40;
inline constexpr std::size_t kHelloBytes = 64;
inline constexpr std::size_t kWelcomeBytes = 16;
inline constexpr std::size_t kTokenBytes = 16;
inline constexpr std::uint32_t kQueueDepth = 64;
inline constexpr std::uint32_t kMaxBlocks = 1 << 17;              // of one frame
inline constexpr std::uint32_t kMaxAskedBlocks = 2 * kMaxBlocks;  // of all reads that are unanswered
inline constexpr std::uint64_t kMaxSliceBytes = std::uint64_t{8} << 20;

enum class FrameType : std::uint8_t {
  write = 1,     // payload: [block table] bytes
  read,          // payload: [block table]
  message,       // payload: bytes
  fetch_add,     // payload: operand, expected
  compare_swap,  // the same
  done,          // token, code; offset: an atomic's old value; length: how much of a refused write was applied
  data,          // token; payload: what a read asked for
};

struct Header {
  static constexpr std::uint8_t kImmediate = 1;  // of a write: tell the target
  static constexpr std::uint8_t kTable = 2;      // the payload begins with `count` offsets, one for each block

  FrameType type = FrameType::write;
  std::uint8_t flags = 0;
  std::uint32_t token = 0;      // the initiator's, given back in done and data
  RegionId region;              // at the target
  std::uint64_t offset = 0;     // with kTable: the table's CRC-32C
  std::uint64_t length = 0;     // of one block
  std::uint32_t immediate = 0;  // done: an ErrorCode; message, fetch_add, compare_swap: the payload's CRC-32C
  std::uint32_t count = 1;      // blocks

  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  [[nodiscard]] std::uint64_t table_bytes() const { return has(kTable) ? std::uint64_t{count} * 8 : 0; }
  [[nodiscard]] std::uint64_t block_bytes() const { return length * count; }
  // Of all that follows the header.
  [[nodiscard]] std::uint64_t payload_bytes() const;
};

std::array<std::byte, kHeaderBytes> encode(const Header& header);
// A header's own sum, which lies in it: of all else in it.
std::uint16_t sum_of(std::span<const std::byte, kHeaderBytes> bytes);
// link_failed when its sum says that it was changed on the way; else protocol_error that says which field, for anything
// that encode() cannot have written.
Result<Header> decode(std::span<const std::byte, kHeaderBytes> bytes);

// The first bytes of a lane, from the initiator; fixed size, so that nothing is parsed before the token was checked.
struct Hello {
  std::array<std::byte, kTokenBytes> token{};
  std::uint16_t lane = 0;
  std::uint32_t attempt = 0;
};
std::array<std::byte, kHelloBytes> encode(const Hello& hello);
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes);
// And the acceptor's answer: the attempt it agrees to, or why it takes none.
enum class Answer : std::uint16_t { welcome, out_of_descriptors };
std::array<std::byte, kWelcomeBytes> encode_welcome(std::uint32_t attempt, Answer answer = Answer::welcome);
Status check_welcome(std::span<const std::byte, kWelcomeBytes> bytes, std::uint32_t attempt);

}  // namespace fairway::transport::tcp
