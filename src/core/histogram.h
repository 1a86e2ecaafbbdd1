#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fairway {

// How long things took, in 1 KiB: counts of values in buckets whose width grows with the value (log-linear, as in
// G. Tene's HdrHistogram), four to each power of two. One thread records, any thread reads a snapshot; nothing
// allocates. Values from 0 to 3 ns are exact, those below 2^32 ns (4.3 s) are known within kRelativeError, longer ones
// are counted and bounded by the maximum, which is exact.
class Histogram {
 public:
  static constexpr std::size_t kBuckets = 125;
  // |percentile - true value| / true value is at most this: a bucket [4u, 5u) is reported as 2 * 4u * 5u / (4u + 5u).
  static constexpr double kRelativeError = 1.0 / 9.0;

  // A copy to compute with. Counts are read one by one while the writer goes on: a snapshot may hold a value in one
  // field and not yet in another, never half a count.
  class Snapshot {
   public:
    std::uint64_t count() const;
    std::uint64_t min_ns() const { return count() == 0 ? 0 : min_ns_; }
    std::uint64_t max_ns() const { return max_ns_; }
    double mean_ns() const;  // exact; 0 when empty
    // The value that `fraction` (0 to 1; 0.99 for p99) of all values do not exceed; 0 when empty.
    std::uint64_t percentile_ns(double fraction) const;
    // As if all values of both had been recorded in one.
    Snapshot& operator+=(const Snapshot& other);

   private:
    friend class Histogram;
    std::array<std::uint64_t, kBuckets> counts_{};
    std::uint64_t sum_ns_ = 0;
    std::uint64_t min_ns_ = ~std::uint64_t{0};
    std::uint64_t max_ns_ = 0;
  };

  // The one writer.
  void record(std::uint64_t value_ns);
  // Any thread.
  Snapshot snapshot() const;

  // For tests: where a value is counted, and the bucket's lowest value.
  static std::size_t bucket_of(std::uint64_t value_ns);
  static std::uint64_t bucket_floor(std::size_t bucket);

 private:
  using Counter = std::atomic<std::uint64_t>;
  // Relaxed throughout: each field is a number of its own and orders nothing else. One writer: no read-modify-write.
  std::array<Counter, kBuckets> counts_{};
  Counter sum_ns_{0};
  Counter min_ns_{~std::uint64_t{0}};
  Counter max_ns_{0};
};

}  // namespace fairway
