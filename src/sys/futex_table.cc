#include "sys/futex_table.h"

#include <climits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace fairway::sys {

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

}  // namespace fairway::sys
