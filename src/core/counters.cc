#include "core/counters.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fairway {
namespace {

constexpr unsigned kSubBits = 2;  // four buckets per power of two
constexpr std::uint64_t kSub = 1u << kSubBits;

}  // namespace

// Values below 4 have a bucket each. Above, a bucket is the position of the highest bit and the two bits after it.
std::size_t Histogram::bucket_of(std::uint64_t value_ns) {
  if (value_ns < kSub) return static_cast<std::size_t>(value_ns);
  const auto shift = static_cast<unsigned>(std::bit_width(value_ns)) - 1 - kSubBits;
  const std::size_t bucket = static_cast<std::size_t>(kSub * shift + (value_ns >> shift));
  return std::min(bucket, kBuckets - 1);
}

std::uint64_t Histogram::bucket_floor(std::size_t bucket) {
  if (bucket < kSub) return bucket;
  const std::uint64_t shift = bucket / kSub - 1;
  return (kSub + bucket % kSub) << shift;
}

void Histogram::record(std::uint64_t value_ns, std::uint64_t times) {
  if (times == 0) return;
  add(counts_[bucket_of(value_ns)], times);
  add(sum_ns_, value_ns * times);
  if (value_ns < min_ns_.load(std::memory_order_relaxed)) min_ns_.store(value_ns, std::memory_order_relaxed);
  if (value_ns > max_ns_.load(std::memory_order_relaxed)) max_ns_.store(value_ns, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot copy;
  for (std::size_t i = 0; i < kBuckets; ++i) copy.counts_[i] = counts_[i].load(std::memory_order_relaxed);
  copy.sum_ns_ = sum_ns_.load(std::memory_order_relaxed);
  copy.min_ns_ = min_ns_.load(std::memory_order_relaxed);
  copy.max_ns_ = max_ns_.load(std::memory_order_relaxed);
  return copy;
}

void Histogram::Snapshot::add(std::uint64_t value_ns, std::uint64_t times) {
  if (times == 0) return;
  counts_[bucket_of(value_ns)] += times;
  sum_ns_ += value_ns * times;
  min_ns_ = std::min(min_ns_, value_ns);
  max_ns_ = std::max(max_ns_, value_ns);
}

std::uint64_t Histogram::Snapshot::count() const {
  std::uint64_t total = 0;
  for (const std::uint64_t count : counts_) total += count;
  return total;
}

double Histogram::Snapshot::mean_ns() const {
  const std::uint64_t total = count();
  return total == 0 ? 0 : static_cast<double>(sum_ns_) / static_cast<double>(total);
}

std::uint64_t Histogram::Snapshot::percentile_ns(double fraction) const {
  const std::uint64_t total = count();
  if (total == 0) return 0;
  const double wanted = std::ceil(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(total));
  const std::uint64_t rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, total);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += counts_[bucket];
    if (seen < rank) continue;
    if (bucket + 1 == kBuckets) return max_ns_;
    const std::uint64_t floor = bucket_floor(bucket);
    const std::uint64_t ceiling = bucket_floor(bucket + 1);
    if (ceiling - floor == 1) return floor;
    // The value with the same relative error to both ends of the bucket.
    const double low = static_cast<double>(floor);
    const double high = static_cast<double>(ceiling);
    const auto middle = static_cast<std::uint64_t>(2 * low * high / (low + high));
    return min_ns_ <= max_ns_ ? std::clamp(middle, min_ns_, max_ns_) : middle;
  }
  return max_ns_;
}

Histogram::Snapshot& Histogram::Snapshot::operator+=(const Snapshot& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  sum_ns_ += other.sum_ns_;
  min_ns_ = std::min(min_ns_, other.min_ns_);
  max_ns_ = std::max(max_ns_, other.max_ns_);
  return *this;
}

}  // namespace fairway
