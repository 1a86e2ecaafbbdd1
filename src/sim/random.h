#pragma once

#include <cstdint>

namespace fairway::sim {

// A seeded random stream (SplitMix64: Steele, Lea, Flood, OOPSLA 2014). A value; the same seed gives the same stream on
// every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // A number in [0, bound); 0 when bound is 0.
  std::uint64_t below(std::uint64_t bound) { return static_cast<std::uint64_t>((Wide{next()} * bound) >> 64); }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(std::uint32_t per_mille) { return below(1000) < per_mille; }
  Random fork() { return Random(next()); }

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t state_;
};

}  // namespace fairway::sim
