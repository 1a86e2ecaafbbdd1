#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/inbox.h"

namespace fairway::transport::tcp {

// An Inbox with the buffers that frames are read into.
class Inbox : public transport::Inbox {
 public:
  static constexpr std::size_t kStagingBytes = 64 * 1024;

  using transport::Inbox::Inbox;

  std::span<std::byte> staging() { return staging_; }
  std::span<std::byte> sink() { return sink_; }  // for bytes to be discarded

 private:
  std::vector<std::byte> staging_ = std::vector<std::byte>(kStagingBytes);
  std::vector<std::byte> sink_ = std::vector<std::byte>(kStagingBytes);
};

}  // namespace fairway::transport::tcp
