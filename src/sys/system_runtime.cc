#include "sys/system_runtime.h"

#include <cerrno>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
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
// The processor's ticks take a third of the time of a reading, if they count time alone: at least one in a nanosecond.
Time SystemClock::about(Reading& last) {
#if defined(__x86_64__)
  static const bool steady = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x8000'0007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;
  }();
  const std::uint64_t ticks = __builtin_ia32_rdtsc();
  if (steady && last.time != 0 && ticks - last.ticks < kLate) return last.time;
  last.ticks = ticks;
#endif
  return last.time = now();
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
