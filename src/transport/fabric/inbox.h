#pragma once

#include <atomic>
#include <cstdint>

#include "transport/event_queue.h"

namespace fairway::transport::fabric {

// What all lanes of a transport share: its events, and what they cost. Owner: the transport's worker; costs are read by
// anyone. System calls are the provider's own affair: it does not tell them.
class Inbox : public EventQueue {
 public:
  std::atomic<std::uint64_t> copied_bytes{0};
};

}  // namespace fairway::transport::fabric
