#pragma once

#include <atomic>
#include <cstdint>

#include "transport/event_queue.h"

namespace fairway::transport {

// What all lanes of a transport share: its events and its cost counters. Owner: the transport's worker; any thread may
// read the counters.
class Inbox : public EventQueue {
 public:
  explicit Inbox(CostCounters& counters) : system_calls(counters.system_calls), copied_bytes(counters.copied_bytes) {}

  std::atomic<std::uint64_t>& system_calls;
  std::atomic<std::uint64_t>& copied_bytes;
};

}  // namespace fairway::transport
