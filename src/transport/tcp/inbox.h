#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/inbox.h"

namespace fairway::transport::tcp {

// An Inbox with the buffers that frames are read into, and one from which short ones are sent.
class Inbox : public transport::Inbox {
 public:
  static constexpr std::size_t kStagingBytes = 64 * 1024;
  static constexpr std::size_t kGatherBytes = 10 * 1024;  // a message with its header, and what travels with it

  using transport::Inbox::Inbox;

  std::span<std::byte> staging() { return staging_; }
  std::span<std::byte> sink() { return sink_; }  // for bytes to be discarded
  std::span<std::byte> gather() { return gather_; }

 private:
  std::vector<std::byte> staging_ = std::vector<std::byte>(kStagingBytes);
  std::vector<std::byte> sink_ = std::vector<std::byte>(kStagingBytes);
  std::vector<std::byte> gather_ = std::vector<std::byte>(kGatherBytes);
};

}  // namespace fairway::transport::tcp
