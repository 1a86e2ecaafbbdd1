#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "fairway/engine.h"
#include "fairway/ids.h"

#include "engine/messages/notify.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// How many notifications of each peer were polled, which returns its credits. Nothing is counted for a peer that is
// gone. Control's thread opens, workers close, callers count; lock-free.
class PolledCounts {
 public:
  // `first`: where every count begins, so that a test need not count to 2^32.
  explicit PolledCounts(std::uint32_t peers, std::uint32_t first = 0)
      : words_(new std::atomic<std::uint64_t>[peers]()), first_(first) {}

  void open(PeerId peer) {  // before anything of it can be polled
    words_[peer.slot].store(std::uint64_t{peer.generation} << 32 | first_, std::memory_order_relaxed);
  }
  bool add(PeerId peer) {  // false: the peer is gone
    std::uint64_t word = words_[peer.slot].load(std::memory_order_relaxed);
    while (word >> 32 == peer.generation)
      if (words_[peer.slot].compare_exchange_weak(word, counted(word), std::memory_order_relaxed)) return true;
    return false;
  }
  [[nodiscard]] std::optional<std::uint32_t> of(PeerId peer) const {  // none: the peer is gone
    const std::uint64_t word = words_[peer.slot].load(std::memory_order_relaxed);
    return word >> 32 == peer.generation ? std::optional(static_cast<std::uint32_t>(word)) : std::nullopt;
  }
  std::uint32_t close(PeerId peer) {  // how many were counted; add() and of() know it no longer
    return static_cast<std::uint32_t>(words_[peer.slot].exchange(0, std::memory_order_relaxed));
  }

 private:
  // One more, modulo 2^32: the carry must not reach the generation.
  static std::uint64_t counted(std::uint64_t word) {
    return (word & ~std::uint64_t{0xffffffff}) | static_cast<std::uint32_t>(word + 1);
  }

  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;  // by slot: generation << 32 | count; generation 0: gone
  const std::uint32_t first_;
};

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

// Engine::probe(): asks the workers for messages that wait for a receive. Any thread.
class MessageProbe {
 public:
  // `probes`: how many callers wait in it; while there are any, each worker tells of what comes (Services::probes).
  MessageProbe(const Workers& workers, Waiting& waiting, std::atomic<std::uint32_t>& probes)
      : workers_(workers), waiting_(waiting), probes_(probes) {}

  Result<Probed> probe(PeerId peer, std::uint64_t tag, Timeout timeout);

 private:
  [[nodiscard]] Status look(PeerId peer, std::uint64_t tag, std::optional<Probed>& found) const;

  const Workers& workers_;
  Waiting& waiting_;
  std::atomic<std::uint32_t>& probes_;
};

}  // namespace fairway::engine
