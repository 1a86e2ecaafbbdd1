#include <algorithm>
#include <array>

#include "sim/campaign.h"

// Promise 8: a killed process is detected within 20 ms; a frozen or cut-off one within the peer timeout plus a tenth.
// And no peer is given up without a fault.
namespace fairway::sim {

namespace {
constexpr Time kKilled = 20 * kMillisecond;
// Back-off: a connection that was cut or refused before is redialed after pauses.
constexpr Time kQuiet = 500 * kMillisecond;
}  // namespace

void Campaign::drain_peer_events(Application& app) {
  std::array<PeerEvent, 8> events;
  for (std::size_t count = events.size(); count == events.size();) {
    count = app.engine->poll_peer_events(events);
    for (PeerEvent& event : std::span(events).first(count)) {
      simulation_.note(app.host->index(), [&] {
        static constexpr const char* kWhat[] = {"peer up",   "peer down", "link up",
                                                "link down", "link slow", "mapping ended"};
        return std::string(kWhat[static_cast<unsigned>(event.kind)]) + ": " + event.name + " " + event.link + " " +
               (event.reason.is_ok() ? "" : event.reason.to_string());
      });
      if (event.kind == PeerEvent::Kind::up) app.peer_changes.push_back({event.peer, event.name});
      if (event.kind == PeerEvent::Kind::down) {
        for (Application::PeerChange& change : app.peer_changes)
          if (change.peer == event.peer) change.up = false;
        oracle_.peer_went(app, event);
        if (faults_injected_ == 0 && !faults_over_)
          oracle_.fail(app.name + " gave up " + event.name + ", which had no fault: " + event.reason.to_string());
      }
      app.unhandled_events.push_back(std::move(event));
    }
  }
}

void Campaign::partition_changed(const Host& a, const Host& b) {
  partition_changed_at_[std::minmax(a.index(), b.index())] = simulation_.now();
}

Time Campaign::partitioned_since(const Host& a, const Host& b) const {
  const auto found = partition_changed_at_.find(std::minmax(a.index(), b.index()));
  return found == partition_changed_at_.end() ? 0 : found->second;
}

// A partition, or a path that is cut one way, slow, or swallows what is long.
bool Campaign::is_path_changed(const Host& a, const Host& b) {
  const auto changed = [&](const Host& from, const Host& to) {
    const Path* path = simulation_.changed_path(from.index(), to.index());
    return path != nullptr && (path->cut || path->bytes_per_second != 0 || path->delay != 0 || path->longest != 0);
  };
  return simulation_.partitioned(a.index(), b.index()) || changed(a, b) || changed(b, a);
}

// Every engine that knows the peer and could notice must notice in time; for a partition, the engines on the other
// side.
void Campaign::expect_death(Application& gone, const Scenario::Planned& planned) {
  using Fault = Scenario::Fault;
  const Time now = simulation_.now();
  for (const auto& app : applications_) {
    Application& observer = *app;
    if (&observer == &gone || !observer.runs()) continue;
    if (planned.fault == Fault::partition && observer.place != (gone.place == planned.a ? planned.b : planned.a))
      continue;
    const Time bound = std::chrono::nanoseconds(observer.options.peer_timeout).count() * 11 / 10;
    if (planned.fault != Fault::kill && planned.lasts <= bound) continue;
    const bool changed = is_path_changed(*observer.host, *gone.host);
    if (planned.fault == Fault::freeze && changed) continue;
    if (planned.fault == Fault::kill && (changed || (observer.disturbed != 0 && observer.disturbed + kQuiet > now) ||
                                         partitioned_since(*observer.host, *gone.host) + kQuiet > now))
      continue;
    drain_peer_events(observer);
    for (const Application::PeerChange& change : observer.peer_changes) {
      if (!change.up || change.name != gone.name) continue;
      watches_.push_back(std::make_unique<Watch>(Watch{this, planned.fault, &observer, &gone, change.peer, now}));
      ++watches_due_;
      simulation_.in(planned.fault == Fault::kill ? kKilled : bound, &Campaign::look_for_death, watches_.back().get());
    }
  }
}

void Campaign::look_for_death(void* object, std::uint64_t, std::uint64_t) {
  const Watch& watch = *static_cast<Watch*>(object);
  Campaign& self = *watch.campaign;
  Application& observer = *watch.observer;
  Application& gone = *watch.gone;
  using Fault = Scenario::Fault;
  --self.watches_due_;
  if (self.faults_over_ || !observer.runs() || observer.disturbed > watch.since ||
      observer.computing_until > watch.since)
    return;
  const bool apart = self.simulation_.partitioned(observer.host->index(), gone.host->index());
  const Time changed = self.partitioned_since(*observer.host, *gone.host);
  // A heartbeat sent before the freeze and delivered when a partition heals counts as life.
  if (watch.why == Fault::freeze && (!gone.host->frozen() || gone.disturbed != watch.since || changed >= watch.since))
    return;
  if (watch.why == Fault::partition && (!apart || changed != watch.since)) return;
  if (watch.why == Fault::kill && changed >= watch.since) return;
  self.drain_peer_events(observer);
  ++self.oracle_.coverage.deaths;
  for (const Application::PeerChange& change : observer.peer_changes)
    if (change.peer == watch.peer && change.up)
      self.oracle_.fail(observer.name + " did not notice within " +
                        std::to_string((self.simulation_.now() - watch.since) / kMicrosecond) + " us that " +
                        gone.name +
                        (watch.why == Fault::kill     ? " was killed"
                         : watch.why == Fault::freeze ? " is frozen"
                                                      : " is cut off"));
}

}  // namespace fairway::sim
