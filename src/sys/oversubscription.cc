#include "sys/oversubscription.h"

#include <array>
#include <charconv>
#include <string_view>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

namespace fairway::sys {
namespace {

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<unsigned>(online) : 1;
}

}  // namespace

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
