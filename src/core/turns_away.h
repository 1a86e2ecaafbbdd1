#pragma once

#include <cstddef>
#include <vector>

namespace fairway {

// Implemented by a Listener that can send a message to a peer before it rejects the connection because this process is
// out of file descriptors.
class TurnsAway {
 public:
  virtual ~TurnsAway() = default;
  virtual void turn_away_with(std::vector<std::byte> words) = 0;
};

}  // namespace fairway
