#include "engine/links/link.h"

#include <algorithm>
#include <utility>

namespace fairway::engine {

void Pace::posted(double least, Time now) {
  if (in_flight_++ == 0) {
    since_ = now;
    bytes_ = 0;
    least_ = least;
  }
  least_ = std::min(least_, least);
}

std::optional<Pace::Slow> Pace::ended(std::uint64_t bytes, Time now) {
  if (in_flight_ == 0) return {};
  --in_flight_;
  bytes_ += bytes;
  if (now < since_ + kWindow) return {};
  const Slow window{static_cast<double>(bytes_) * 1e9 / static_cast<double>(now - since_), least_};
  since_ = now;
  bytes_ = 0;
  if (window.reached >= window.least / 2) {
    slow_ = 0;
    told_ = false;
    return {};
  }
  if (++slow_ < kWindows || std::exchange(told_, true)) return {};
  return window;
}

}  // namespace fairway::engine
