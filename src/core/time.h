#pragma once

#include <chrono>
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

// When `left` has passed. kNever: never; 0: it has passed already.
constexpr Time passes_at(Time now, std::chrono::microseconds left) {
  if (left.count() <= 0) return 0;
  const auto us = static_cast<std::uint64_t>(left.count());
  return us > kNever / kMicrosecond ? kNever : after(now, us * kMicrosecond);
}

}  // namespace fairway
