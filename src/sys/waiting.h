#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/atomics.h"
#include "core/runtime.h"
#include "sys/crowd.h"

namespace fairway::sys {

// Executor::wait and wake_all by futex. Any thread. A wake-up costs a system call only when somebody may sleep on a
// word of the same bucket.
class Waiting {
 public:
  Waiting(Clock& clock, Crowd& crowd) : clock_(clock), crowd_(crowd) {}

  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline);
  void wake_all(std::atomic<std::uint32_t>& word);

  static constexpr Time kSpin = 20 * kMicrosecond;

 private:
  struct alignas(kCacheLine) Bucket {
    std::atomic<std::uint32_t> sleepers{0};
  };
  Bucket& bucket_of(const std::atomic<std::uint32_t>& word);

  Clock& clock_;
  Crowd& crowd_;
  std::array<Bucket, 64> buckets_;
};

// Tells the core that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace fairway::sys
