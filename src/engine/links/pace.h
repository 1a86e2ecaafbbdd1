#pragma once

#include <cstdint>
#include <optional>

#include "core/time.h"

namespace fairway::engine {

// Checks a link's rate against the rate that the machine model expects. It reports a link that stayed below half of the
// range's low end for three windows in a row, and reports it again only after it has recovered. A window counts only if
// transfers large enough to be rate-bound were in flight throughout. A value; owner: the link's.
class Pace {
 public:
  static constexpr Time kWindow = 50 * kMillisecond;
  static constexpr int kWindows = 3;
  // Shorter transfers, at the expected rate, are bound by latency.
  static constexpr Time kLongEnough = 100 * kMicrosecond;

  struct Slow {
    double reached = 0;  // bytes per second, over the last window
    double least = 0;    // that were expected
  };

  // The least rate expected of a transfer of so many bytes, if any. `least`: the path's.
  static double for_transfer(double least, std::uint64_t bytes) {
    return static_cast<double>(bytes) >= least * static_cast<double>(kLongEnough) / 1e9 ? least : 0;
  }

  // A slice of a transfer with `least` > 0 was posted, and has ended, with so many bytes moved.
  void posted(double least, Time now);
  std::optional<Slow> ended(std::uint64_t bytes, Time now);
  void reset() { *this = {}; }

 private:
  std::uint32_t in_flight_ = 0;
  Time since_ = 0;           // the window's begin
  std::uint64_t bytes_ = 0;  // in the window
  double least_ = 0;         // of the paths used in it
  int slow_ = 0;             // windows in a row
  bool told_ = false;
};

}  // namespace fairway::engine
