#include "engine/arrivals.h"

#include <algorithm>
#include <string>

namespace fairway::engine {
namespace {

constexpr std::uint64_t kMostNotifications = 8192;

}  // namespace

Arrivals::Arrivals(const EngineOptions& options, const Workers& workers, Waiting& waiting)
    : workers_(workers),
      waiting_(waiting),
      notifications_(options.max_peers,
                     static_cast<std::uint32_t>(std::min(
                         std::uint64_t{options.max_peers} * options.notifications_per_peer, kMostNotifications))),
      counters_(options.max_counters),
      polled_(options.max_peers) {}

void Arrivals::return_credits(PeerId peer) {
  const auto total = polled_.of(peer);
  if (!total) return;
  workers_.owner_of(peer.slot).post([peer, total = *total](Worker& worker) {
    if (Peer* owner = worker.peer_of(peer)) owner->notifier().consumed(total);
  });
}

std::size_t Arrivals::poll(std::span<Notification> notifications) {
  waiting_.drive();
  std::size_t count = 0;
  PeerId last;
  while (count < notifications.size() && notifications_.pop(notifications[count])) {
    const PeerId peer = notifications[count++].peer;
    if (!polled_.add(peer)) notifications_.give_back(1);  // the peer is gone: its place is free for others
    if (last && last != peer) return_credits(last);
    last = peer;
  }
  if (last) return_credits(last);
  if (count == 0) waiting_.settle();
  return count;
}

Status Arrivals::wait(Timeout timeout) {
  return waiting_.wait_for(timeout, "no notification came in time", [&] { return !notifications_.empty(); });
}

Status Arrivals::wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout) {
  const bool came = waiting_.wait_until(waiting_.deadline(timeout),
                                        [&] { return counter(immediate) >= at_least || waiting_.closed(); });
  if (counter(immediate) >= at_least) return {};
  if (came) return {ErrorCode::closed, "the engine is closed"};
  return {ErrorCode::timed_out, "counter " + std::to_string(immediate) + " stands at " +
                                    std::to_string(counter(immediate)) + " of " + std::to_string(at_least)};
}

}  // namespace fairway::engine
