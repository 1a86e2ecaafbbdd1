#include "sys/system_clock.h"

#include <cerrno>

#include <sys/random.h>
#include <time.h>

namespace fairway::sys {
namespace {

std::uint64_t read_clock(clockid_t which) {
  timespec time{};
  ::clock_gettime(which, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

Time SystemClock::now() {
  return read_clock(CLOCK_MONOTONIC);
}
std::uint64_t SystemClock::unix_ns() {
  return read_clock(CLOCK_REALTIME);
}

void SystemRng::fill(std::span<std::byte> out) {
  while (!out.empty()) {
    // getrandom fails only for a bad address, or when interrupted before the kernel's pool is first seeded.
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got > 0) out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace fairway::sys
