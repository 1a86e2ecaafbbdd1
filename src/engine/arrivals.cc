#include "engine/arrivals.h"

#include <algorithm>
#include <array>
#include <string>

namespace fairway::engine {

void Arrivals::return_credits(PeerId peer) {
  const auto total = tables_.polled.of(peer);
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

template <class Pop>
std::size_t Arrivals::take(std::span<Notification> notifications, const Pop& pop) {
  std::size_t count = 0;
  PeerId last;
  while (count < notifications.size() && pop(notifications[count])) {
    const PeerId peer = notifications[count++].peer;
    if (!tables_.polled.add(peer)) tables_.notifications.give_back(1);  // the peer is gone: its slot is free
    if (last && last != peer) return_credits(last);
    last = peer;
  }
  if (last) return_credits(last);
  return count;
}

std::size_t Arrivals::poll(std::span<Notification> notifications) {
  (void)waiting_.drive_before_poll(!notifications.empty() && !tables_.notifications.empty());
  const std::size_t count = take(notifications, [this](Notification& next) { return tables_.notifications.pop(next); });
  if (count == 0) waiting_.settle();
  return count;
}

std::size_t Arrivals::poll(CounterSpaceId id, std::span<Notification> notifications) {
  CounterSpaces::Space* const space = tables_.spaces.find(id);
  if (space == nullptr) return 0;
  (void)waiting_.drive_before_poll(!notifications.empty() && CounterSpaces::has_events(*space));
  const std::size_t count =
      take(notifications, [&](Notification& next) { return tables_.spaces.pop(*space, id, next); });
  if (count == 0) waiting_.settle();
  return count;
}

Status Arrivals::release_counters(CounterSpaceId id) {
  auto space = tables_.spaces.retire(id);
  if (!space) return space.status();
  workers_.call_all([](Worker&) {});  // none is about to put something there any more
  std::array<Notification, 1> left;
  while (take(left, [&](Notification& next) { return tables_.spaces.pop_left(**space, next); }) > 0) {
  }
  tables_.spaces.free(**space);
  waiting_.notice();
  return {};
}

Status Arrivals::wait(Timeout timeout) {
  return waiting_.wait_for(timeout, "no notification came in time", [&] { return !tables_.notifications.empty(); });
}

Status Arrivals::wait(CounterSpaceId id, Timeout timeout) {
  const CounterSpaces::Space* const space = tables_.spaces.find(id);
  const auto gone = [&] { return tables_.spaces.find(id) != space || space == nullptr; };
  const Status waited = waiting_.wait_for(timeout, "no notification came in time",
                                          [&] { return gone() || CounterSpaces::has_events(*space); });
  return gone() ? Status(ErrorCode::not_found, "no such counter space, or it was released") : waited;
}

Status Arrivals::wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout) {
  const bool came = waiting_.wait_until(waiting_.deadline(timeout),
                                        [&] { return waiting_.nothing_comes() || counter(immediate) >= at_least; });
  if (counter(immediate) >= at_least) return {};
  if (came) return {ErrorCode::closed, "the engine is closed"};
  return {ErrorCode::timed_out, "counter " + std::to_string(immediate) + " stands at " +
                                    std::to_string(counter(immediate)) + " of " + std::to_string(at_least)};
}

Status MessageProbe::look(PeerId peer, std::uint64_t tag, std::optional<Probed>& found) const {
  if (peer) return workers_.with_peer(peer, [&](Worker&, Peer& of) { found = of.first_message(tag); });
  for (const auto& worker : workers_.all()) {
    worker->call([&](Worker& owner) { found = owner.first_message(tag); });
    if (found) break;
  }
  return {};
}

Result<Probed> MessageProbe::probe(PeerId peer, std::uint64_t tag, Timeout timeout) {
  const Asleep watching(tables_.probes);
  std::optional<Probed> found;
  Status status;
  (void)waiting_.wait_until(waiting_.deadline(timeout), [&] {
    if (waiting_.closed())
      status = {ErrorCode::closed, "the engine is closed"};
    else
      status = look(peer, tag, found);
    return found || !status;
  });
  if (found) return *found;
  if (!status) return status;
  return Status(ErrorCode::timed_out, "no message of tag " + std::to_string(tag) + " waits for a receive");
}

}  // namespace fairway::engine
