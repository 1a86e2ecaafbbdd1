#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

// Figures that one thread writes and any thread reads: gauges, what moving bytes costs, and durations.
namespace fairway {

// A number that one thread at a time writes and any thread reads at any time, by itself: it orders nothing else. With
// one writer no read-modify-write is needed, so it costs what a plain number does. Copies are of the writer.
template <class T>
class Gauge {
 public:
  Gauge(T value = {}) : value_(value) {}  // NOLINT(google-explicit-constructor)
  Gauge(const Gauge& other) : value_(static_cast<T>(other)) {}
  ~Gauge() = default;
  Gauge& operator=(const Gauge& other) { return *this = static_cast<T>(other); }
  Gauge& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator T() const { return value_.load(std::memory_order_relaxed); }  // NOLINT(google-explicit-constructor)
  Gauge& operator+=(T more) { return *this = static_cast<T>(*this + more); }
  Gauge& operator-=(T less) { return *this = static_cast<T>(*this - less); }
  Gauge& operator++() { return *this += 1; }
  Gauge& operator--() { return *this -= 1; }

 private:
  std::atomic<T> value_;
};

// What moving bytes cost this process. One thread writes; any thread reads.
struct CostCounters {
  std::atomic<std::uint64_t> system_calls{0}, copied_bytes{0};  // bytes copied besides the kernel's or device's copy
};

// By the thread that writes: a plain store, since no other comes between.
inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

// A histogram of durations in 1 KiB. Buckets are log-linear, four per power of two (as in G. Tene's HdrHistogram). One
// thread records, any thread takes a snapshot, nothing allocates. Values from 0 to 3 ns are exact. Values below 2^32 ns
// (4.3 s) are known within kRelativeError. Longer ones are counted and bounded by the maximum, which is exact.
class Histogram {
 public:
  static constexpr std::size_t kBuckets = 125;
  // Upper bound of |percentile - true value| / true value: a bucket [4u, 5u) is reported as 2 * 4u * 5u / (4u + 5u).
  static constexpr double kRelativeError = 1.0 / 9.0;

  // A copy for computing. Fields are copied one by one while the writer goes on, so a value may be in one field and not
  // yet in another. No single count is torn.
  class Snapshot {
   public:
    std::uint64_t count() const;
    std::uint64_t min_ns() const { return count() == 0 ? 0 : min_ns_; }
    std::uint64_t max_ns() const { return max_ns_; }
    double mean_ns() const;  // exact; 0 when empty
    // The smallest recorded bound that at least `fraction` of the values do not exceed (0 to 1; 0.99 for p99); 0 when
    // empty.
    std::uint64_t percentile_ns(double fraction) const;
    void add(std::uint64_t value_ns, std::uint64_t times);  // as if it had been recorded
    // Merges: the result is as if one histogram had recorded the values of both.
    Snapshot& operator+=(const Snapshot& other);

   private:
    friend class Histogram;
    std::array<std::uint64_t, kBuckets> counts_{};
    std::uint64_t sum_ns_ = 0;
    std::uint64_t min_ns_ = ~std::uint64_t{0};
    std::uint64_t max_ns_ = 0;
  };

  // Only one thread may call this. `times`: so many that are alike.
  void record(std::uint64_t value_ns, std::uint64_t times = 1);
  // Any thread.
  Snapshot snapshot() const;

  // For tests: the bucket of a value, and a bucket's lowest value.
  static std::size_t bucket_of(std::uint64_t value_ns);
  static std::uint64_t bucket_floor(std::size_t bucket);

 private:
  using Counter = std::atomic<std::uint64_t>;
  // Relaxed: each field is independent and orders nothing else. With one writer no read-modify-write is needed.
  std::array<Counter, kBuckets> counts_{};
  Counter sum_ns_{0};
  Counter min_ns_{~std::uint64_t{0}};
  Counter max_ns_{0};
};

}  // namespace fairway
