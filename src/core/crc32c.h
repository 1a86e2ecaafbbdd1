#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fairway {

// CRC-32C (Castagnoli; RFC 3720 appendix B.4) of `bytes`, going on from `seed`: 0 for the first piece, else the result
// of the piece before, so that crc32c(crc32c(0, a), b) is the checksum of a followed by b. Any thread. Uses the
// processor's instruction where there is one.
std::uint32_t crc32c(std::uint32_t seed, std::span<const std::byte> bytes);

// The same without special instructions, several times slower: what crc32c() falls back to.
std::uint32_t crc32c_portable(std::uint32_t seed, std::span<const std::byte> bytes);

// What crc32c() uses on this machine: "sse4.2", "armv8" or "portable".
std::string_view crc32c_method();

}  // namespace fairway
