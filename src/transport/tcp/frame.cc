#include "transport/tcp/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/bytes.h"

namespace fairway::transport::tcp {
namespace {

constexpr std::uint32_t kHelloMagic = 0x31'50'54'46;    // "FTP1"
constexpr std::size_t kSumAt = 2;                       // in a header
constexpr std::uint32_t kWelcomeMagic = 0x31'57'54'46;  // "FTW1"

// CRC-16 with the polynomial of ITU-T V.41. In a header it detects any three changed bits; 16 bits of CRC-32C do not.
// Slicing by 8 (M. Kounavis, F. Berry, Intel 2005): table k advances the CRC of a byte by k more zero bytes. Its two
// bytes are swapped here: the high one meets the next byte of a header first.
constexpr auto kCrc16 = [] {
  std::array<std::array<std::uint16_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i << 8;
    for (int bit = 0; bit < 8; ++bit) value = (value & 0x8000) != 0 ? value << 1 ^ 0x1021 : value << 1;
    tables[0][i] = static_cast<std::uint16_t>(value);
  }
  for (std::size_t k = 1; k < tables.size(); ++k)
    for (std::size_t i = 0; i < 256; ++i)
      tables[k][i] = static_cast<std::uint16_t>(tables[k - 1][i] << 8 ^ tables[0][tables[k - 1][i] >> 8]);
  for (auto& table : tables)
    for (std::uint16_t& entry : table) entry = static_cast<std::uint16_t>(entry >> 8 | entry << 8);
  return tables;
}();

// Without the checksum's own two bytes a header has 38. Two zeros ahead of them make five words: they change nothing
// where the CRC begins with zero, and its beginning of 0xffff is the same as the first two bytes inverted.
std::array<std::uint64_t, 5> words_of(std::span<const std::byte, kHeaderBytes> bytes) {
  static_assert(kSumAt == 2 && kHeaderBytes == 5 * sizeof(std::uint64_t));
  std::array<std::uint64_t, 5> words;
  std::memcpy(words.data(), bytes.data(), kHeaderBytes);
  words[0] = (~words[0] & 0xffff) << 16 | (words[0] & 0xffff'ffff'0000'0000);
  return words;
}

// The CRC of a word, its two bytes swapped.
std::uint32_t step(std::uint64_t word) {
  const auto& t = kCrc16;
  const auto first = static_cast<std::uint32_t>(word);
  const auto second = static_cast<std::uint32_t>(word >> 32);
  return t[7][first & 0xff] ^ t[6][first >> 8 & 0xff] ^ t[5][first >> 16 & 0xff] ^ t[4][first >> 24] ^
         t[3][second & 0xff] ^ t[2][second >> 8 & 0xff] ^ t[1][second >> 16 & 0xff] ^ t[0][second >> 24];
}

#if defined(__x86_64__)

// x to that power, modulo the polynomial.
constexpr long long power_of_x(unsigned exponent) {
  std::uint32_t value = 1;
  for (; exponent > 0; --exponent) value = (value & 0x8000) != 0 ? (value << 1 ^ 0x1'1021) : value << 1;
  return value;
}

// One word with the CRC of all five: each is worth itself times the power of x for the bits behind it (V. Gopal et al.,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). A product has 79 bits, of
// which those above 64 are folded once more.
__attribute__((target("pclmul"))) std::uint64_t folded(const std::array<std::uint64_t, 5>& words) {
  const auto times = [](std::uint64_t word, long long power) __attribute__((target("pclmul"))) {
    return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(word)), _mm_cvtsi64_si128(power), 0);
  };
  const auto first_bit_first = [](std::uint64_t word) { return __builtin_bswap64(word); };
  __m128i all = times(first_bit_first(words[0]), power_of_x(256));
  all = _mm_xor_si128(all, times(first_bit_first(words[1]), power_of_x(192)));
  all = _mm_xor_si128(all, times(first_bit_first(words[2]), power_of_x(128)));
  all = _mm_xor_si128(all, times(first_bit_first(words[3]), power_of_x(64)));
  const auto above = static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(all, all)));
  all = _mm_xor_si128(all, times(above, power_of_x(64)));
  return first_bit_first(static_cast<std::uint64_t>(_mm_cvtsi128_si64(all))) ^ words[4];
}

#endif

// A header as it lies on the wire.
struct Wire {
  std::uint8_t type, flags;
  std::uint16_t sum;
  std::uint32_t token, slot, generation;
  std::uint64_t offset, length;
  std::uint32_t immediate, count;
};
static_assert(sizeof(Wire) == kHeaderBytes && offsetof(Wire, sum) == kSumAt);
static_assert(std::endian::native == std::endian::little, "frames travel as they lie in memory");

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
    case FrameType::done:
    case FrameType::taken: break;
  }
  return 0;
}

std::uint16_t sum_by_tables(std::span<const std::byte, kHeaderBytes> bytes) {
  std::uint32_t sum = 0;
  for (const std::uint64_t word : words_of(bytes)) sum = step(word ^ sum);
  return static_cast<std::uint16_t>(sum >> 8 | sum << 8);
}

std::uint16_t sum_of(std::span<const std::byte, kHeaderBytes> bytes) {
#if defined(__x86_64__)
  static const bool folds = __builtin_cpu_supports("pclmul") != 0;
  if (folds) {
    const std::uint32_t sum = step(folded(words_of(bytes)));
    return static_cast<std::uint16_t>(sum >> 8 | sum << 8);
  }
#endif
  return sum_by_tables(bytes);
}

std::array<std::byte, kHeaderBytes> encode(const Header& header) {
  auto bytes = std::bit_cast<std::array<std::byte, kHeaderBytes>>(
      Wire{static_cast<std::uint8_t>(header.type), static_cast<std::uint8_t>(header.flags | header.acks << 2), 0,
           header.token, header.region.slot, header.region.generation, header.offset, header.length, header.immediate,
           header.count});
  const std::uint16_t sum = sum_of(bytes);
  std::memcpy(bytes.data() + kSumAt, &sum, sizeof sum);
  return bytes;
}

Status decode(std::span<const std::byte, kHeaderBytes> bytes, Header& header) {
  Wire wire;
  std::memcpy(&wire, bytes.data(), kHeaderBytes);
  header.type = static_cast<FrameType>(wire.type);
  header.flags = wire.flags & (Header::kImmediate | Header::kTable);
  header.acks = wire.flags >> 2;
  header.token = wire.token;
  header.region = {wire.slot, wire.generation};
  header.offset = wire.offset;
  header.length = wire.length;
  header.immediate = wire.immediate;
  header.count = wire.count;
  if (wire.sum != sum_of(bytes))
    return Status(ErrorCode::link_failed, "tcp: a frame header is corrupted (wrong checksum)");
  if (wire.type < static_cast<std::uint8_t>(FrameType::write) ||
      wire.type > static_cast<std::uint8_t>(FrameType::taken))
    return wrong("unknown type");
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
  if (header.type == FrameType::taken && header.acks == 0) return wrong("an acknowledgement of nothing");
  return {};
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
