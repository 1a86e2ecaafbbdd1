#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/memory.h"

#include "sim/random.h"

namespace fairway::sim {

// A byte that tells where it belongs.
constexpr std::byte pattern(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t mixed = (position / 8 + 1) * 0x9e3779b97f4a7c15 ^ seed * 0xd6e8feb86659fd93;
  return static_cast<std::byte>(mixed >> (8 * (position % 8)) ^ position);
}

// A region of a simulated application, and what every byte of it must be. Ranges are reserved for one transfer at a
// time; all that is not reserved must stay as it was painted, for ever: that is how a byte out of bounds, or one that
// lands after its fence, is seen. Owned by the campaign.
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
    std::uint32_t length = 0;  // whole blocks
    std::uint64_t seed = 0;    // of what it was painted with
  };
  // Reserves room for `length` bytes and paints it; false: no room.
  bool take(std::uint32_t length, Random& random, Range& out);
  // Free again: painted anew at once, so that whatever still lands in it is seen.
  void give_back(Range& range);
  // Free again with whatever is in it now, which must not change any more.
  void adopt(const Range& range);
  // Nobody knows what may still land there: not looked at, nor used, again.
  void quarantine(const Range& range);
  // Nothing can touch it any more, as its engine is closed: all of it is painted anew and watched.
  void reclaim();

  // Empty, or where a byte that belongs to no transfer has changed.
  std::string check() const;
  // Of a range: where the first byte is that is not as painted; its length when none.
  std::uint32_t differs(const Range& range) const;

  Region region;          // while registered
  bool given_up = false;  // deregistering it was not fenced: neither used nor looked at until reclaim()

 private:
  enum class Block : std::uint8_t { free, taken, quarantined };
  void paint(std::uint32_t begin, std::uint32_t length, std::uint64_t seed);

  const std::uint32_t size_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> shadow_;  // of all bytes, margins included
  std::vector<Block> blocks_;
  std::uint64_t next_seed_;
};

}  // namespace fairway::sim
