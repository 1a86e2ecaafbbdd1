#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fairway {

// The CRC-32C checksum (Castagnoli; RFC 3720 appendix B.4) of `bytes`. `seed` is 0 for the first piece and the previous
// result for each later piece: crc32c(crc32c(0, a), b) is the checksum of a followed by b. Any thread. Uses the
// processor's CRC instruction where there is one.
std::uint32_t crc32c(std::uint32_t seed, std::span<const std::byte> bytes);

// The same result without special instructions, several times slower. crc32c() falls back to it.
std::uint32_t crc32c_portable(std::uint32_t seed, std::span<const std::byte> bytes);

// The implementation that crc32c() uses on this machine: "sse4.2", "armv8" or "portable".
std::string_view crc32c_method();

}  // namespace fairway
