#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/counters.h"

namespace fairway {
namespace {

TEST(Histogram, TakesOneKibibyte) {
  EXPECT_EQ(sizeof(Histogram), 1024u);
}

TEST(Histogram, BucketsCoverEveryValueWithoutGapOrOverlap) {
  for (std::size_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    const auto floor = Histogram::bucket_floor(bucket);
    const auto next = Histogram::bucket_floor(bucket + 1);
    ASSERT_LT(floor, next);
    EXPECT_EQ(Histogram::bucket_of(floor), bucket);
    EXPECT_EQ(Histogram::bucket_of(next - 1), bucket);
  }
  EXPECT_EQ(Histogram::bucket_floor(Histogram::kBuckets - 1), std::uint64_t{1} << 32);
  EXPECT_EQ(Histogram::bucket_of(~std::uint64_t{0}), Histogram::kBuckets - 1);
}

TEST(Histogram, EmptySaysZeroEverywhere) {
  const auto empty = Histogram().snapshot();
  EXPECT_EQ(empty.count(), 0u);
  EXPECT_EQ(empty.min_ns(), 0u);
  EXPECT_EQ(empty.max_ns(), 0u);
  EXPECT_EQ(empty.mean_ns(), 0.0);
  EXPECT_EQ(empty.percentile_ns(0.5), 0u);
}

// Two equal values around a third make the median a bucket's middle that neither minimum nor maximum corrects.
TEST(Histogram, EveryValueIsWithinTheStatedError) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t value = 0; value < 5000; ++value) values.push_back(value);
  for (unsigned bit = 12; bit < 32; ++bit)
    for (const std::uint64_t eighth : {8u, 9u, 10u, 11u, 12u, 13u, 14u, 15u, 16u})
      values.push_back((eighth << (bit - 3)) - 1);
  for (const std::uint64_t value : values) {
    Histogram histogram;
    histogram.record(0);
    histogram.record(value);
    histogram.record(std::uint64_t{1} << 33);
    const double reported = static_cast<double>(histogram.snapshot().percentile_ns(0.5));
    ASSERT_LE(std::abs(reported - static_cast<double>(value)),
              Histogram::kRelativeError * static_cast<double>(value) + 1e-9)
        << value;
  }
}

TEST(Histogram, PercentilesOfASpreadAreWithinTheStatedError) {
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> latency(9, 1.5);
  Histogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 100000; ++i) {
    values.push_back(static_cast<std::uint64_t>(latency(random)));
    histogram.record(values.back());
  }
  std::sort(values.begin(), values.end());
  const auto snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.count(), values.size());
  for (const double fraction : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(fraction * 100000.0)));
    const double exact = static_cast<double>(values[rank - 1]);
    EXPECT_NEAR(static_cast<double>(snapshot.percentile_ns(fraction)), exact, exact * Histogram::kRelativeError)
        << fraction;
  }
}

TEST(Histogram, MinimumMaximumAndMeanAreExact) {
  Histogram histogram;
  for (const std::uint64_t value : {1003u, 17u, 123457u}) histogram.record(value);
  const auto snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.min_ns(), 17u);
  EXPECT_EQ(snapshot.max_ns(), 123457u);
  EXPECT_DOUBLE_EQ(snapshot.mean_ns(), (1003.0 + 17.0 + 123457.0) / 3.0);
}

TEST(Histogram, ValuesBeyondTheLastBucketAreCountedAndBoundedByTheMaximum) {
  Histogram histogram;
  histogram.record(std::uint64_t{3} << 40);
  EXPECT_EQ(histogram.snapshot().count(), 1u);
  EXPECT_EQ(histogram.snapshot().percentile_ns(0.99), std::uint64_t{3} << 40);
}

TEST(Histogram, AddedSnapshotsAreAsIfRecordedInOne) {
  Histogram left, right, both;
  for (std::uint64_t value = 1; value < 3000; value += 7) {
    (value % 2 ? left : right).record(value);
    both.record(value);
  }
  auto sum = left.snapshot();
  sum += right.snapshot();
  const auto expected = both.snapshot();
  EXPECT_EQ(sum.count(), expected.count());
  EXPECT_EQ(sum.min_ns(), expected.min_ns());
  EXPECT_EQ(sum.max_ns(), expected.max_ns());
  for (double fraction = 0; fraction <= 1; fraction += 0.05)
    EXPECT_EQ(sum.percentile_ns(fraction), expected.percentile_ns(fraction));
}

TEST(Histogram, AReaderBesideTheWriterNeverSeesCountsGoBack) {
  Histogram histogram;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < 200000; ++i) histogram.record(i);
  });
  std::uint64_t before = 0;
  while (before < 200000) {
    const std::uint64_t now = histogram.snapshot().count();
    ASSERT_GE(now, before);
    before = now;
  }
  writer.join();
}

}  // namespace
}  // namespace fairway
