#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/atomics.h"
#include "core/runtime.h"
#include "sys/oversubscription.h"

namespace fairway::sys {

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

}  // namespace fairway::sys
