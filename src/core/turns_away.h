#pragma once

#include <cstddef>
#include <vector>

namespace fairway {

// What a Listener may be besides: one that has a word for callers whom it turns away because this process is out of
// descriptors.
class TurnsAway {
 public:
  virtual ~TurnsAway() = default;
  virtual void turn_away_with(std::vector<std::byte> words) = 0;
};

}  // namespace fairway
