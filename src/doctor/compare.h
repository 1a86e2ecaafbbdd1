#pragma once

#include <span>

#include "doctor/finding.h"

namespace fairway::doctor {

// The ratio b/a of pairs of runs made in turn, with its 95 % interval: the mean of the logarithms of each pair's ratio
// and Student's t of their spread. Wants three pairs or more; with fewer, or rates that are none, the interval is all
// there is.
Ratio ratio_of(std::span<const double> a, std::span<const double> b);
// Whether the interval says that b is faster by this factor at least.
bool is_faster(const Ratio& ratio, double factor);

}  // namespace fairway::doctor
