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
  Worker& worker = workers_.owner_of(peer.slot);
  // Usually only a count, which this thread can store itself. A command in the worker's queue would keep the small
  // write that often answers a notification from completing within its call (Worker::complete_now).
  bool noted = false, more = false;
  const auto note = [&] {
    if (worker.is_closed()) return;
    noted = true;
    Peer* const owner = worker.peer_of(peer);
    if (owner == nullptr) return;
    owner->notifier().consumed(*total);
    more = owner->transfers().has_work();
  };
  (void)(waiting_.by_caller() ? waiting_.in_their_place(note) : worker.in_its_place(note));
  if (more) worker.wake();
  if (noted) return;
  worker.post([peer, total = *total](Worker& by) {
    if (Peer* owner = by.peer_of(peer)) owner->notifier().consumed(total);
  });
}

std::size_t Arrivals::poll(std::span<Notification> notifications) {
  (void)waiting_.drive_before_poll(!notifications.empty() && !notifications_.empty());
  std::size_t count = 0;
  PeerId last;
  while (count < notifications.size() && notifications_.pop(notifications[count])) {
    const PeerId peer = notifications[count++].peer;
    if (!polled_.add(peer)) notifications_.give_back(1);  // the peer is gone: its slot is free
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
