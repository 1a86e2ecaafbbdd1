#include "sys/thread_executor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sys/thread_task.h"

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

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex needs the plain 32-bit word");

FutexTable::Bucket& FutexTable::bucket_of(const std::atomic<std::uint32_t>& word) {
  const auto address = reinterpret_cast<std::uintptr_t>(&word);
  return buckets_[(address >> 4 ^ address >> 12) % buckets_.size()];
}

void FutexTable::wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) {
  const Time start = clock_.now();
  if (!oversubscription_.detected(start)) {
    for (Time now = start; now < after(start, kSpin) && now < deadline; now = clock_.now()) {
      if (word.load(std::memory_order_acquire) != seen) return;
      relax();
    }
  }
  if (word.load(std::memory_order_acquire) != seen || clock_.now() >= deadline) return;

  // The sleeper registers, then the kernel reads the word. The waker changes the word, then reads the count of
  // sleepers. Both are sequentially consistent (the kernel reads behind a full barrier), so at least one sees the
  // other: a waker that counts no sleeper changed the word before the kernel read it.
  Bucket& bucket = bucket_of(word);
  bucket.sleepers.fetch_add(1, std::memory_order_seq_cst);
  timespec until{};
  if (deadline != kNever) {
    until.tv_sec = static_cast<time_t>(deadline / kSecond);
    until.tv_nsec = static_cast<long>(deadline % kSecond);
  }
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, deadline == kNever ? nullptr : &until,
            nullptr, FUTEX_BITSET_MATCH_ANY);
  bucket.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void FutexTable::wake_all(std::atomic<std::uint32_t>& word) {
  if (bucket_of(word).sleepers.fetch_add(0, std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, nullptr, nullptr, 0);
}

Result<std::unique_ptr<Task>> ThreadExecutor::start(const TaskOptions& options, Stepper& stepper) {
  return options.caller_steps ? CallerTask::start(options)
                              : ThreadTask::start(options, stepper, clock_, oversubscription_);
}

Result<std::unique_ptr<Signal>> ThreadExecutor::make_signal() {
  return EventSignal::make(clock_);
}

// Uses at most one thread per processor, the caller's included. If no thread can be started, the caller runs every job.
void ThreadExecutor::run_all(std::size_t count, const std::function<void(std::size_t)>& job) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) job(i);
  };
  const std::size_t most = std::min<std::size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  sigset_t all, before;  // signal handlers must run on the application's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (helpers.size() + 1 < most) helpers.emplace_back(work);
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  work();
}

}  // namespace fairway::sys
