#pragma once

#include <atomic>
#include <cstdint>

#include "transport/event_queue.h"

namespace fairway::transport::verbs {

// What all lanes of a transport share: its events, and what they cost. Owner: the transport's worker; costs are read by
// anyone.
class Inbox : public EventQueue {
 public:
  std::atomic<std::uint64_t> system_calls{0};  // a doorbell is none: it is a store to the NIC, except with rxe
  std::atomic<std::uint64_t> copied_bytes{0};
};

}  // namespace fairway::transport::verbs
