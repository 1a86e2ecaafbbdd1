#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace fairway::predict {

// An end of a range, or its middle.
enum class Level : std::uint8_t { low, expected, high };
inline constexpr std::array<Level, 3> kLevels = {Level::low, Level::expected, Level::high};

// An expected figure and its plausible range: low <= expected <= high.
struct Range {
  double low = 0;
  double expected = 0;
  double high = 0;

  static constexpr Range exactly(double x) { return {x, x, x}; }
  [[nodiscard]] constexpr double at(Level level) const {
    return level == Level::low ? low : level == Level::high ? high : expected;
  }
  constexpr void set(Level level, double x) {
    (level == Level::low ? low : level == Level::high ? high : expected) = x;
  }
  [[nodiscard]] constexpr bool holds(double x) const { return low <= x && x <= high; }
  friend constexpr Range operator*(const Range& a, double k) { return {a.low * k, a.expected * k, a.high * k}; }
  friend constexpr Range operator+(const Range& a, const Range& b) {
    return {a.low + b.low, a.expected + b.expected, a.high + b.high};
  }
  friend bool operator==(const Range&, const Range&) = default;
};

}  // namespace fairway::predict
