#pragma once

#include "core/runtime.h"

namespace fairway::sys {

// CLOCK_MONOTONIC for now(), CLOCK_REALTIME for unix_ns(). Stateless; any thread.
class SystemClock final : public Clock {
 public:
  Time now() override;
  Time about(Reading& last) override;
  std::uint64_t unix_ns() override;
};

// The kernel's random generator (getrandom). Stateless; any thread.
class SystemRng final : public Rng {
 public:
  void fill(std::span<std::byte> out) override;
};

}  // namespace fairway::sys
