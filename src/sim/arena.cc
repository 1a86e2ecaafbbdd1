#include "sim/arena.h"

#include <algorithm>
#include <cstring>

namespace fairway::sim {

Arena::Arena(std::uint32_t size, Random& random)
    : size_(size),
      bytes_(size + 2 * kMargin, std::byte{0xd7}),
      shadow_(bytes_),
      blocks_(size / kBlock, Block::free),
      next_seed_(random.next()) {
  paint(0, size_, next_seed_++);
}

void Arena::paint(std::uint32_t begin, std::uint32_t length, std::uint64_t seed) {
  for (std::uint32_t i = 0; i < length; i += 8) {  // ranges consist of whole blocks
    std::uint64_t word = 0;
    const std::uint64_t mixed = ((begin + i) / 8 + 1) * 0x9e3779b97f4a7c15 ^ seed * 0xd6e8feb86659fd93;
    for (std::uint32_t k = 0; k < 8; ++k)
      word |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(mixed >> (8 * k) ^ (begin + i + k))) << (8 * k);
    std::memcpy(bytes_.data() + kMargin + begin + i, &word, 8);
  }
  std::memcpy(shadow_.data() + kMargin + begin, bytes_.data() + kMargin + begin, length);
}

bool Arena::take(std::uint32_t length, Random& random, Range& out) {
  const auto need = std::max<std::uint32_t>(1, (length + kBlock - 1) / kBlock);
  const auto count = static_cast<std::uint32_t>(blocks_.size());
  if (need > count) return false;
  const auto start = static_cast<std::uint32_t>(random.below(count - need + 1));
  std::uint32_t run = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t at = (start + i) % count;
    if (at == 0) run = 0;
    run = blocks_[at] == Block::free ? run + 1 : 0;
    if (run < need) continue;
    const std::uint32_t first = at + 1 - need;
    std::fill_n(blocks_.begin() + first, need, Block::taken);
    out = {first * kBlock, need * kBlock, next_seed_++};
    paint(out.begin, out.length, out.seed);
    return true;
  }
  return false;
}

void Arena::release(Range& range) {
  if (unusable) return;
  range.seed = next_seed_++;
  paint(range.begin, range.length, range.seed);
  std::fill_n(blocks_.begin() + range.begin / kBlock, range.length / kBlock, Block::free);
}

void Arena::release_as_is(const Range& range) {
  std::memcpy(shadow_.data() + kMargin + range.begin, data() + range.begin, range.length);
  std::fill_n(blocks_.begin() + range.begin / kBlock, range.length / kBlock, Block::free);
}

void Arena::quarantine(const Range& range) {
  std::fill_n(blocks_.begin() + range.begin / kBlock, range.length / kBlock, Block::quarantined);
}

void Arena::reclaim() {
  unusable = false;
  std::fill(blocks_.begin(), blocks_.end(), Block::free);
  paint(0, size_, next_seed_++);
}

std::uint32_t Arena::differs(const Range& range) const {
  const std::byte* is = data() + range.begin;
  const std::byte* was = shadow_.data() + kMargin + range.begin;
  return static_cast<std::uint32_t>(std::mismatch(is, is + range.length, was).first - is);
}

std::string Arena::check() const {
  if (unusable) return {};
  const std::size_t after = kMargin + size_;
  if (std::memcmp(bytes_.data(), shadow_.data(), kMargin) != 0 ||
      std::memcmp(bytes_.data() + after, shadow_.data() + after, kMargin) != 0)
    return "a byte next to the region changed";
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const std::size_t at = kMargin + block * kBlock;
    if (blocks_[block] == Block::free && std::memcmp(bytes_.data() + at, shadow_.data() + at, kBlock) != 0) {
      const auto* is = bytes_.data() + at;
      const auto byte = std::mismatch(is, is + kBlock, shadow_.data() + at).first - is;
      return "byte " + std::to_string(block * kBlock + static_cast<std::size_t>(byte)) +
             " changed, although no transfer may touch it";
    }
  }
  return {};
}

}  // namespace fairway::sim
