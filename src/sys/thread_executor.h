#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <sched.h>

#include "core/atomics.h"
#include "core/runtime.h"
#include "core/time.h"
#include "sys/fd.h"

// Runs steppers on threads, and lets threads wait: on futexes, and spinning only while there are cores for it.
namespace fairway::sys {

// CPUs that this process may use, however many the machine may have. `ask` has ::sched_getaffinity's form.
unsigned usable_cores(int (*ask)(pid_t, std::size_t, cpu_set_t*) = ::sched_getaffinity);

// Whether the host has more runnable threads than this process has cores; then no thread should spin. Any thread. The
// answer is sampled from the count of runnable threads in /proc/loadavg, only on demand and at most every 10 ms (about
// 5 us each).
class Oversubscription {
 public:
  Oversubscription();
  bool detected(Time now);
  [[nodiscard]] unsigned cores() const { return cores_; }  // that this process might use when this was made

  static constexpr Time kSampleEvery = 10 * kMillisecond;

 private:
  bool sample() const;

  const Fd loadavg_;  // empty where /proc is not mounted: never oversubscribed
  const unsigned cores_;
  std::atomic<Time> next_sample_{0};
  std::atomic<bool> detected_{false};
};

// Implements Executor::wait and wake_all with futexes. Any thread. A wake-up costs a system call only when a thread may
// be sleeping on a word of the same bucket.
class FutexTable {
 public:
  FutexTable(Clock& clock, Oversubscription& oversubscription) : clock_(clock), oversubscription_(oversubscription) {}

  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline);
  void wake_all(std::atomic<std::uint32_t>& word);

  static constexpr Time kSpin = 20 * kMicrosecond;

 private:
  struct alignas(kCacheLine) Bucket {
    std::atomic<std::uint32_t> sleepers{0};
  };
  Bucket& bucket_of(const std::atomic<std::uint32_t>& word);

  Clock& clock_;
  Oversubscription& oversubscription_;
  std::array<Bucket, 64> buckets_;
};

// Tells the CPU that this is a spin loop (PAUSE or YIELD).
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Runs each stepper on its own thread. Any thread; must outlive its tasks and signals.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(Clock& clock) : clock_(clock), futexes_(clock, oversubscription_) {}

  Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) override;
  Result<std::unique_ptr<Signal>> make_signal() override;
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override {
    futexes_.wait(word, seen, deadline);
  }
  void wake_all(std::atomic<std::uint32_t>& word) override { futexes_.wake_all(word); }
  [[nodiscard]] unsigned cores() const override { return oversubscription_.cores(); }
  void run_all(std::size_t count, const std::function<void(std::size_t)>& job) override;

 private:
  Clock& clock_;
  Oversubscription oversubscription_;
  FutexTable futexes_;
};

}  // namespace fairway::sys
