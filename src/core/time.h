#pragma once

#include <cstdint>

namespace fairway {

// Nanoseconds on a monotonic clock with an arbitrary zero.
using Time = std::uint64_t;

inline constexpr Time kNever = ~Time{0};
inline constexpr Time kMicrosecond = 1'000;
inline constexpr Time kMillisecond = 1'000'000;
inline constexpr Time kSecond = 1'000'000'000;

// `now + delay`, saturating at kNever.
constexpr Time after(Time now, Time delay) {
  return delay > kNever - now ? kNever : now + delay;
}

}  // namespace fairway
