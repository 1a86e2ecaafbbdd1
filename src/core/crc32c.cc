#include "core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace fairway {
namespace {

// Polynomials are stored bit-reversed: bit 31 is the coefficient of x^0. This is the remainder of x^32.
constexpr std::uint32_t kPolynomial = 0x82f63b78;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
}

// Slicing by 8 (M. Kounavis, F. Berry, Intel 2005): table k advances the CRC of a byte by k more zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

[[maybe_unused]] std::uint64_t load_u64(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// The functions below work on the raw remainder; the public functions invert it before and after.
std::uint32_t update_portable(std::uint32_t crc, const std::byte* at, std::size_t size) {
  if constexpr (std::endian::native == std::endian::little) {
    for (; size >= 8; at += 8, size -= 8) {
      const std::uint64_t word = load_u64(at) ^ crc;
      crc = 0;
      for (unsigned i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
    }
  }
  for (; size > 0; ++at, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 0xff];
  return crc;
}

#if defined(__x86_64__)

constexpr std::uint32_t x_to_the(std::size_t exponent) {
  std::uint32_t value = 0x80000000;
  for (; exponent > 0; --exponent) value = times_x(value);
  return value;
}

// Advances the remainder by `kBytes` zero bytes. The constant corrects for two shifts: the carry-less product of two
// reversed polynomials is one place short (a factor x), and the crc32 instruction multiplies its 64-bit operand by
// x^32.
template <std::size_t kBytes>
__attribute__((target("sse4.2,pclmul"))) std::uint32_t skip_zeros(std::uint32_t crc) {
  constexpr std::uint32_t kFactor = x_to_the(8 * kBytes - 33);
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(crc)), _mm_cvtsi32_si128(static_cast<int>(kFactor)), 0);
  return static_cast<std::uint32_t>(_mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product))));
}

// The crc32 instruction has a latency of 3 cycles and a throughput of one per cycle, so three adjacent blocks are
// processed in parallel (V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel
// 2011).
template <std::size_t kBlock>
__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_blocks(std::uint32_t crc, const std::byte*& at,
                                                                     std::size_t& size) {
  static_assert(kBlock % 8 == 0);
  for (; size >= 3 * kBlock; at += 3 * kBlock, size -= 3 * kBlock) {
    std::uint64_t first = crc;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kBlock; i += 8) {
      first = _mm_crc32_u64(first, load_u64(at + i));
      second = _mm_crc32_u64(second, load_u64(at + kBlock + i));
      third = _mm_crc32_u64(third, load_u64(at + 2 * kBlock + i));
    }
    crc = skip_zeros<2 * kBlock>(static_cast<std::uint32_t>(first)) ^
          skip_zeros<kBlock>(static_cast<std::uint32_t>(second)) ^ static_cast<std::uint32_t>(third);
  }
  return crc;
}

__attribute__((target("sse4.2,pclmul"))) std::uint32_t update_sse42(std::uint32_t crc, const std::byte* at,
                                                                    std::size_t size) {
  crc = update_blocks<4096>(crc, at, size);
  crc = update_blocks<256>(crc, at, size);
  std::uint64_t wide = crc;
  for (; size >= 8; at += 8, size -= 8) wide = _mm_crc32_u64(wide, load_u64(at));
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++at, --size) crc = _mm_crc32_u8(crc, std::to_integer<std::uint8_t>(*at));
  return crc;
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

std::uint32_t update_armv8(std::uint32_t crc, const std::byte* at, std::size_t size) {
  for (; size >= 8; at += 8, size -= 8) crc = __crc32cd(crc, load_u64(at));
  for (; size > 0; ++at, --size) crc = __crc32cb(crc, std::to_integer<std::uint8_t>(*at));
  return crc;
}

#endif

struct Method {
  std::uint32_t (*update)(std::uint32_t, const std::byte*, std::size_t);
  std::string_view name;
};

const Method& method() {
  static const Method chosen = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return Method{update_sse42, "sse4.2"};
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
    return Method{update_armv8, "armv8"};
#endif
    return Method{update_portable, "portable"};
  }();
  return chosen;
}

}  // namespace

std::uint32_t crc32c(std::uint32_t seed, std::span<const std::byte> bytes) {
  return ~method().update(~seed, bytes.data(), bytes.size());
}

std::uint32_t crc32c_portable(std::uint32_t seed, std::span<const std::byte> bytes) {
  return ~update_portable(~seed, bytes.data(), bytes.size());
}

std::string_view crc32c_method() {
  return method().name;
}

}  // namespace fairway
