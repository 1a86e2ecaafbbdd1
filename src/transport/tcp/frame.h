#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "fairway/status.h"

#include "transport/transport.h"

// The frames of a lane after its hello: a fixed header and a payload. See docs/wire-format-tcp.md.
namespace fairway::transport::tcp {

inline constexpr std::uint16_t kVersion = 6;
inline constexpr std::size_t kHeaderBytes = 40;
inline constexpr std::size_t kHelloBytes = 64;
inline constexpr std::size_t kWelcomeBytes = 16;
// Bytes between frames that the receiver skips. The sender adds them so that a long payload begins, and each call ends,
// at a multiple of kAlignment in the stream. No header begins with this byte, not even with three of its bits changed.
inline constexpr std::byte kPadding{0xff};
inline constexpr std::size_t kAlignment = 64;
inline constexpr std::size_t kTokenBytes = 16;
inline constexpr std::uint32_t kQueueDepth = 64;
inline constexpr std::uint32_t kMaxBlocks = 1 << 17;              // of one frame
inline constexpr std::uint32_t kMaxAskedBlocks = 2 * kMaxBlocks;  // of all unanswered reads
inline constexpr std::uint64_t kMaxSliceBytes = std::uint64_t{8} << 20;

enum class FrameType : std::uint8_t {
  write = 1,     // payload: [block table] bytes
  read,          // payload: [block table]
  message,       // payload: bytes
  fetch_add,     // payload: operand, expected
  compare_swap,  // the same
  done,          // token, code; offset: an atomic's old value; length: bytes of a refused write that were applied
  data,          // token; payload: the bytes of a read
  taken,         // nothing but acknowledgements
};

struct Header {
  static constexpr std::uint8_t kImmediate = 1;  // a write with immediate data
  static constexpr std::uint8_t kTable = 2;      // the payload begins with a block table: `count` offsets
  static constexpr std::uint32_t kMostAcks = 63;

  FrameType type = FrameType::write;
  std::uint8_t flags = 0;
  std::uint8_t acks = 0;        // so many more of the peer's messages and immediates, in their order, were taken
  std::uint32_t token = 0;      // chosen by the initiator, returned in done and data
  RegionId region;              // at the target
  std::uint64_t offset = 0;     // with kTable: the table's CRC-32C
  std::uint64_t length = 0;     // of one block
  std::uint32_t immediate = 0;  // done: an ErrorCode; message, fetch_add, compare_swap: the payload's CRC-32C
  std::uint32_t count = 1;      // blocks

  [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  [[nodiscard]] std::uint64_t table_bytes() const { return has(kTable) ? std::uint64_t{count} * 8 : 0; }
  [[nodiscard]] std::uint64_t block_bytes() const { return length * count; }
  // Bytes after the header.
  [[nodiscard]] std::uint64_t payload_bytes() const;
};

std::array<std::byte, kHeaderBytes> encode(const Header& header);
// The checksum of a header, over everything but the checksum itself.
std::uint16_t sum_of(std::span<const std::byte, kHeaderBytes> bytes);
std::uint16_t sum_by_tables(std::span<const std::byte, kHeaderBytes> bytes);  // the same, where the CPU has no help
// Errors: link_failed if the checksum is wrong; protocol_error, naming the field, for anything that encode() cannot
// have written.
Status decode(std::span<const std::byte, kHeaderBytes> bytes, Header& header);
inline Result<Header> decode(std::span<const std::byte, kHeaderBytes> bytes) {
  Header header;
  Status status = decode(bytes, header);
  return status ? Result<Header>(header) : Result<Header>(std::move(status));
}

// The first bytes of a lane, from the initiator. Its size is fixed, so nothing is parsed before the token is checked.
struct Hello {
  std::array<std::byte, kTokenBytes> token{};
  std::uint16_t lane = 0;
  std::uint32_t attempt = 0;
};
std::array<std::byte, kHelloBytes> encode(const Hello& hello);
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes);
// The acceptor's answer: the attempt that it accepts, or why it refuses.
enum class Answer : std::uint16_t { welcome, out_of_descriptors };
std::array<std::byte, kWelcomeBytes> encode_welcome(std::uint32_t attempt, Answer answer = Answer::welcome);
Status check_welcome(std::span<const std::byte, kWelcomeBytes> bytes, std::uint32_t attempt);

}  // namespace fairway::transport::tcp
