#pragma once

#include <span>

#include "doctor/finding.h"

namespace fairway::doctor {

// The ratio b/a of pairs of runs made in turn, with its 95 % confidence interval: the mean of the logarithms of the
// pairs' ratios, and Student's t. Rates must be above 0. With fewer than three pairs the interval is 0 to infinity.
Ratio ratio_of(std::span<const double> a, std::span<const double> b);
// Whether all of the interval lies above this factor: b is faster.
bool is_faster(const Ratio& ratio, double factor);

}  // namespace fairway::doctor
