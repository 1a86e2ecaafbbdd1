#pragma once

#include "core/runtime.h"

namespace fairway::sys {

// CLOCK_MONOTONIC, and CLOCK_REALTIME for unix_ns(). Holds nothing; any thread.
class SystemClock final : public Clock {
 public:
  Time now() override;
  std::uint64_t unix_ns() override;
};

// The kernel's generator (getrandom). Holds nothing; any thread.
class SystemRng final : public Rng {
 public:
  void fill(std::span<std::byte> out) override;
};

}  // namespace fairway::sys
