#include "transport/tcp/frame.h"

#include <algorithm>
#include <string>

#include "core/bytes.h"

namespace fairway::transport::tcp {
namespace {

constexpr std::uint32_t kHelloMagic = 0x31'50'54'46;    // "FTP1"
constexpr std::size_t kSumAt = 2;                       // in a header
constexpr std::uint32_t kWelcomeMagic = 0x31'57'54'46;  // "FTW1"

// CRC-16 with the polynomial of ITU-T V.41. In a header it detects any three changed bits; 16 bits of CRC-32C do not.
constexpr auto kCrc16 = [] {
  std::array<std::uint16_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i << 8;
    for (int bit = 0; bit < 8; ++bit) value = (value & 0x8000) != 0 ? value << 1 ^ 0x1021 : value << 1;
    table[i] = static_cast<std::uint16_t>(value);
  }
  return table;
}();

Status wrong(const char* what) {
  return {ErrorCode::protocol_error, std::string("tcp: malformed frame from the peer: ") + what};
}

}  // namespace

std::uint64_t Header::payload_bytes() const {
  switch (type) {
    case FrameType::write: return table_bytes() + block_bytes();
    case FrameType::read: return table_bytes();
    case FrameType::message:
    case FrameType::data: return block_bytes();
    case FrameType::fetch_add:
    case FrameType::compare_swap: return 16;
    case FrameType::done: break;
  }
  return 0;
}

std::uint16_t sum_of(std::span<const std::byte, kHeaderBytes> bytes) {
  std::uint16_t sum = 0xffff;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (i != kSumAt && i != kSumAt + 1)
      sum = static_cast<std::uint16_t>(sum << 8 ^ kCrc16[sum >> 8 ^ std::to_integer<std::uint16_t>(bytes[i])]);
  return sum;
}

std::array<std::byte, kHeaderBytes> encode(const Header& header) {
  std::array<std::byte, kHeaderBytes> bytes;
  ByteWriter(bytes)
      .put(static_cast<std::uint8_t>(header.type))
      .put(header.flags)
      .put(std::uint16_t{0})
      .put(header.token)
      .put(header.region.slot)
      .put(header.region.generation)
      .put(header.offset)
      .put(header.length)
      .put(header.immediate)
      .put(header.count);
  ByteWriter(std::span(bytes).subspan(kSumAt)).put(sum_of(bytes));
  return bytes;
}

Result<Header> decode(std::span<const std::byte, kHeaderBytes> bytes) {
  ByteReader reader(bytes);
  Header header;
  const auto type = reader.get<std::uint8_t>();
  header.type = static_cast<FrameType>(type);
  header.flags = reader.get<std::uint8_t>();
  const auto sum = reader.get<std::uint16_t>();
  header.token = reader.get<std::uint32_t>();
  header.region.slot = reader.get<std::uint32_t>();
  header.region.generation = reader.get<std::uint32_t>();
  header.offset = reader.get<std::uint64_t>();
  header.length = reader.get<std::uint64_t>();
  header.immediate = reader.get<std::uint32_t>();
  header.count = reader.get<std::uint32_t>();
  if (sum != sum_of(bytes)) return Status(ErrorCode::link_failed, "tcp: a frame header is corrupted (wrong checksum)");
  if (type < static_cast<std::uint8_t>(FrameType::write) || type > static_cast<std::uint8_t>(FrameType::data))
    return wrong("unknown type");
  if ((header.flags & ~(Header::kImmediate | Header::kTable)) != 0) return wrong("unknown flags");
  const bool moves = header.type == FrameType::write || header.type == FrameType::read;
  if ((header.has(Header::kImmediate) && header.type != FrameType::write) || (header.has(Header::kTable) && !moves))
    return wrong("flags that its type does not allow");
  if (header.count == 0 || (!header.has(Header::kTable) && header.count != 1) || header.count > kMaxBlocks)
    return wrong("the number of blocks is out of range");
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(header.length, std::uint64_t{header.count}, &total) || total > kMaxSliceBytes)
    return wrong("too long");
  if (header.type == FrameType::message && header.length > kMessageBytes) return wrong("the message is too long");
  if (header.type == FrameType::done && header.immediate > static_cast<std::uint32_t>(ErrorCode::system_error))
    return wrong("unknown result code");
  return header;
}

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  std::array<std::byte, kHelloBytes> bytes{};
  ByteWriter(bytes).put(kHelloMagic).put(kVersion).put(hello.lane).put(hello.attempt).put_bytes(hello.token);
  return bytes;
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes) {
  ByteReader reader(bytes);
  Hello hello;
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  hello.lane = reader.get<std::uint16_t>();
  hello.attempt = reader.get<std::uint32_t>();
  const auto token = reader.get_bytes(kTokenBytes);
  std::copy(token.begin(), token.end(), hello.token.begin());
  const auto rest = reader.get_bytes(kHelloBytes - 12 - kTokenBytes);
  const bool zero = std::all_of(rest.begin(), rest.end(), [](std::byte each) { return each == std::byte{0}; });
  if (magic != kHelloMagic || version != kVersion || !zero) return wrong("not a hello of this version");
  return hello;
}

std::array<std::byte, kWelcomeBytes> encode_welcome(std::uint32_t attempt, Answer answer) {
  std::array<std::byte, kWelcomeBytes> bytes{};
  ByteWriter(bytes).put(kWelcomeMagic).put(kVersion).put(static_cast<std::uint16_t>(answer)).put(attempt);
  return bytes;
}

Status check_welcome(std::span<const std::byte, kWelcomeBytes> bytes, std::uint32_t attempt) {
  const auto is = [&](const std::array<std::byte, kWelcomeBytes>& wanted) {
    return std::equal(bytes.begin(), bytes.end(), wanted.begin());
  };
  if (is(encode_welcome(attempt))) return {};
  if (is(encode_welcome(0, Answer::out_of_descriptors)))
    return {ErrorCode::resource_exhausted, "tcp: the peer's process is out of file descriptors: raise its ulimit -n"};
  return {ErrorCode::protocol_error, "tcp: the server at that address is not a Fairway engine of this version"};
}

}  // namespace fairway::transport::tcp
