#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "fairway/engine.h"
#include "fairway/ids.h"

#include "engine/tables/engine_tables.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// Notifications from peers, as callers of the API see them: events to poll, and counters. Any thread.
class Arrivals {
 public:
  // Everything given outlives it.
  Arrivals(EngineTables& tables, const Workers& workers, Waiting& waiting)
      : tables_(tables), workers_(workers), waiting_(waiting) {}

  // As the calls of Engine: poll_notifications, wait_notification, counter, wait_counter.
  std::size_t poll(std::span<Notification> notifications);
  Status wait(Timeout timeout);
  [[nodiscard]] std::uint64_t counter(std::uint32_t immediate) const { return tables_.counters.read(immediate); }
  Status wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout);
  Result<CounterSpace> make_counters(std::uint32_t count, std::optional<std::uint32_t> first) {
    if (waiting_.closed()) return Status(ErrorCode::closed, "the engine is closed");
    return tables_.spaces.make(count, first, tables_.counters);
  }
  Status release_counters(CounterSpaceId id);
  std::size_t poll(CounterSpaceId id, std::span<Notification> notifications);
  Status wait(CounterSpaceId id, Timeout timeout);

  [[nodiscard]] const std::shared_ptr<CounterRanges>& ranges() const { return tables_.spaces.ranges(); }

 private:
  // Stores what pop(notification) gives, and returns its credits.
  template <class Pop>
  std::size_t take(std::span<Notification> notifications, const Pop& pop);
  void return_credits(PeerId peer);

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
};

// Engine::probe(): asks the workers for messages that wait for a receive. Any thread.
class MessageProbe {
 public:
  // While there are callers, which it counts in EngineTables::probes, each worker tells of what comes.
  MessageProbe(EngineTables& tables, const Workers& workers, Waiting& waiting)
      : tables_(tables), workers_(workers), waiting_(waiting) {}

  Result<Probed> probe(PeerId peer, std::uint64_t tag, Timeout timeout);

 private:
  [[nodiscard]] Status look(PeerId peer, std::uint64_t tag, std::optional<Probed>& found) const;

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
};

}  // namespace fairway::engine
