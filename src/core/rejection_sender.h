#pragma once

#include <cstddef>
#include <vector>

namespace fairway {

// Implemented by a Listener that can send a message to a peer before it rejects the connection because this process is
// out of file descriptors.
class RejectionSender {
 public:
  virtual ~RejectionSender() = default;
  virtual void set_rejection(std::vector<std::byte> message) = 0;
};

}  // namespace fairway
