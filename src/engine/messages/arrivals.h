#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "fairway/engine.h"

#include "engine/messages/notify.h"
#include "engine/messages/polled_counts.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// Notifications from peers, as callers of the API see them: events to poll, and counters. Any thread.
class Arrivals {
 public:
  // Everything given outlives it.
  Arrivals(const EngineOptions& options, const Workers& workers, Waiting& waiting);

  // As the calls of Engine: poll_notifications, wait_notification, counter, wait_counter.
  std::size_t poll(std::span<Notification> notifications);
  Status wait(Timeout timeout);
  [[nodiscard]] std::uint64_t counter(std::uint32_t immediate) const { return counters_.read(immediate); }
  Status wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout);
  Result<CounterSpace> make_counters(std::uint32_t count, std::optional<std::uint32_t> first) {
    if (waiting_.closed()) return Status(ErrorCode::closed, "the engine is closed");
    return spaces_.make(count, first, counters_);
  }
  Status release_counters(CounterSpaceId id);
  std::size_t poll(CounterSpaceId id, std::span<Notification> notifications);
  Status wait(CounterSpaceId id, Timeout timeout);

  [[nodiscard]] const std::shared_ptr<CounterRanges>& ranges() const { return spaces_.ranges(); }

  // For workers, and for who gives them a peer.
  NotificationQueue& notifications() { return notifications_; }
  CounterTable& counters() { return counters_; }
  PolledCounts& polled() { return polled_; }

 private:
  // Stores what pop(notification) gives, and returns its credits.
  template <class Pop>
  std::size_t take(std::span<Notification> notifications, const Pop& pop);
  void return_credits(PeerId peer);

  const Workers& workers_;
  Waiting& waiting_;
  CounterSpaces spaces_;
  NotificationQueue notifications_;
  CounterTable counters_;
  PolledCounts polled_;
};

}  // namespace fairway::engine
