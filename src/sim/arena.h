#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/memory.h"

#include "sim/random.h"

namespace fairway::sim {

// The test pattern: a byte that depends on its position and the seed.
constexpr std::byte pattern(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t mixed = (position / 8 + 1) * 0x9e3779b97f4a7c15 ^ seed * 0xd6e8feb86659fd93;
  return static_cast<std::byte>(mixed >> (8 * (position % 8)) ^ position);
}

// A region of a simulated application together with the expected value of every byte. A range is reserved for one
// transfer at a time. Bytes outside reserved ranges must keep their pattern for ever: this detects writes out of bounds
// and writes after a fence. Owned by the campaign.
class Arena {
 public:
  static constexpr std::uint32_t kBlock = 64;
  static constexpr std::uint32_t kMargin = 256;

  Arena(std::uint32_t size, Random& random);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() { return bytes_.data() + kMargin; }
  const std::byte* data() const { return bytes_.data() + kMargin; }
  std::uint32_t size() const { return size_; }

  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t length = 0;  // a multiple of the block size
    std::uint64_t seed = 0;    // seed of its pattern
  };
  // Reserves a range of `length` bytes and fills it with a new pattern. False: no room.
  bool take(std::uint32_t length, Random& random, Range& out);
  // Releases the range and fills it with a new pattern, so that a late write to it is detected.
  void release(Range& range);
  // Releases the range with its current content, which must not change any more.
  void release_as_is(const Range& range);
  // Late writes may still land in the range: it is neither checked nor used again.
  void quarantine(const Range& range);
  // The engine is closed and nothing can write any more: fills the whole arena with a new pattern and checks it again.
  void reclaim();

  // Empty, or the place of a changed byte that belongs to no transfer.
  std::string check() const;
  // The offset of the first byte in the range that differs from the pattern; the range's length when none does.
  std::uint32_t differs(const Range& range) const;

  Region region;          // valid while registered
  bool unusable = false;  // its deregistration was not fenced: neither used nor checked until reclaim()

 private:
  enum class Block : std::uint8_t { free, taken, quarantined };
  void paint(std::uint32_t begin, std::uint32_t length, std::uint64_t seed);

  const std::uint32_t size_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> shadow_;  // expected value of all bytes, guard margins included
  std::vector<Block> blocks_;
  std::uint64_t next_seed_;
};

}  // namespace fairway::sim
