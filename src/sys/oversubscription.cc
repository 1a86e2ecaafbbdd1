#include "sys/oversubscription.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace fairway::sys {

unsigned usable_cores(int (*ask)(pid_t, std::size_t, cpu_set_t*)) {
  // The kernel refuses a set with fewer places than the machine may have CPUs, and one cpu_set_t has 1,024.
  constexpr std::size_t kMostSets = 1024;
  for (std::vector<cpu_set_t> sets(1); sets.size() <= kMostSets; sets.resize(sets.size() * 2)) {
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    CPU_ZERO_S(bytes, sets.data());
    if (ask(0, bytes, sets.data()) == 0) return static_cast<unsigned>(CPU_COUNT_S(bytes, sets.data()));
    if (errno != EINVAL) break;
  }
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<unsigned>(online) : 1;
}

Oversubscription::Oversubscription()
    : loadavg_(::open("/proc/loadavg", O_RDONLY | O_CLOEXEC)), cores_(usable_cores()) {}

bool Oversubscription::detected(Time now) {
  Time next = next_sample_.load(std::memory_order_relaxed);
  // The thread that advances the time of the next sample takes that sample; the others use the last result.
  if (now >= next && next_sample_.compare_exchange_strong(next, now + kSampleEvery, std::memory_order_relaxed))
    detected_.store(sample(), std::memory_order_relaxed);
  return detected_.load(std::memory_order_relaxed);
}

bool Oversubscription::sample() const {
  if (!loadavg_) return false;
  std::array<char, 128> text;
  const ssize_t size = ::pread(loadavg_.get(), text.data(), text.size(), 0);
  if (size <= 0) return false;
  // "0.20 0.18 0.12 3/93 12271": the fourth field is runnable/total threads and includes the calling thread.
  std::string_view rest(text.data(), static_cast<std::size_t>(size));
  for (int field = 0; field < 3; ++field) {
    const auto space = rest.find(' ');
    if (space == std::string_view::npos) return false;
    rest.remove_prefix(space + 1);
  }
  unsigned runnable = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), runnable);
  return runnable > cores_;
}

}  // namespace fairway::sys
