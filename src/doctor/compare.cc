#include "doctor/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace fairway::doctor {

namespace {

// Two-sided 95 % of Student's t, by degrees of freedom 1 to 30.
constexpr std::array<double, 30> kStudent = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                             2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                             2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};

}  // namespace

Ratio ratio_of(std::span<const double> a, std::span<const double> b) {
  std::vector<double> logs;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] > 0 && b[i] > 0) logs.push_back(std::log(b[i] / a[i]));
  }
  if (logs.empty()) return {0, 0, std::numeric_limits<double>::infinity()};
  double mean = 0;
  for (const double x : logs) mean += x;
  mean /= static_cast<double>(logs.size());
  if (logs.size() < 3) return {0, std::exp(mean), std::numeric_limits<double>::infinity()};
  double squares = 0;
  for (const double x : logs) squares += (x - mean) * (x - mean);
  const auto degrees = logs.size() - 1;
  const double error = std::sqrt(squares / static_cast<double>(degrees) / static_cast<double>(logs.size()));
  const double t = degrees <= kStudent.size() ? kStudent[degrees - 1] : 1.96;
  return {std::exp(mean - t * error), std::exp(mean), std::exp(mean + t * error)};
}

bool is_faster(const Ratio& ratio, double factor) {
  return ratio.low > factor;
}

}  // namespace fairway::doctor
