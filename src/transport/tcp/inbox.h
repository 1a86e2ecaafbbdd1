#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/event_queue.h"

namespace fairway::transport::tcp {

// What all lanes of a transport share: its events, the buffers that frames are read into, and what it all cost. Owner:
// the transport's worker; costs are read by anyone.
class Inbox : public EventQueue {
 public:
  static constexpr std::size_t kStagingBytes = 64 * 1024;

  std::span<std::byte> staging() { return staging_; }
  std::span<std::byte> sink() { return sink_; }  // where bytes go that nobody wants

  std::atomic<std::uint64_t> system_calls{0};
  std::atomic<std::uint64_t> copied_bytes{0};

 private:
  std::vector<std::byte> staging_ = std::vector<std::byte>(kStagingBytes);
  std::vector<std::byte> sink_ = std::vector<std::byte>(kStagingBytes);
};

}  // namespace fairway::transport::tcp
