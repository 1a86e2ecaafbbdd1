#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace fairway::support {

// The share of a core that something idle uses, by its CPU seconds so far: the least of a few looks of two seconds
// each, since other load on the machine only adds to it (cold caches, more wake-ups). Ends with the first below
// `enough`.
inline double least_share(const std::function<double()>& cpu_seconds, double enough) {
  constexpr int kLooks = 4;
  double least = 1;
  for (int look = 0; look < kLooks && least >= enough; ++look) {
    const auto start = std::chrono::steady_clock::now();
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, (cpu_seconds() - before) / took.count());
  }
  return least;
}

}  // namespace fairway::support
