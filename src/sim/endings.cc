#include <algorithm>
#include <array>

#include "sim/campaign.h"

// What ends early, and who must notice. Transfers and regions that end early, also while a NIC holds their slices.
// Fenced memory is reused at once; memory that is not fenced is left alone.
namespace fairway::sim {

namespace {

constexpr Timeout kClosesLinks = std::chrono::milliseconds(14);  // half of it exceeds any fence

// Often shorter than a hold, so that the call cannot report a fence.
Timeout some_timeout(Random& random) {
  if (random.chance(300)) return std::chrono::seconds(3);
  return std::chrono::microseconds(random.chance(500) ? random.between(14'000, 18'000) : random.between(20, 14'000));
}

}  // namespace

void Campaign::hold(Application& app, Time lasts) {
  app.held_until = std::max(app.held_until, simulation_.now() + lasts);
  fabric_.hold(*app.host, simulation_.now() + lasts);
}

void Campaign::cancel_one(Application& app) {
  const bool held = random_.chance(400) && !app.known.empty();
  if (held) {
    Application::KnownPeer& to = app.known[random_.below(app.known.size())];
    for (std::uint64_t burst = random_.between(1, 3); burst > 0; --burst) submit(app, to);
    simulation_.run_until(simulation_.now() + random_.below(30 * kMicrosecond));
    hold(random_.chance(500) ? app : *to.application, random_.between(50, 40'000) * kMicrosecond);
    if (!app.runs()) return;
  }
  std::vector<Job*> mine;
  for (Job& job : oracle_.jobs())
    if (job.from == &app && job.accepted && !job.completed && !job.cancelled) mine.push_back(&job);
  if (mine.empty()) return;
  Job& job = held ? *mine.back() : *mine[random_.below(mine.size())];
  job.cancelled = true;
  const Time began = simulation_.now();
  const Timeout timeout = held ? some_timeout(random_) : std::chrono::seconds(3);
  const auto result = app.engine->cancel(job.id, timeout);
  const bool undisturbed = app.runs() && app.held_until < began && app.disturbed < began;
  poll_engine(app);  // takes its completion, if it has one
  if (!result) return;
  oracle_.cancelled(job, *result);
  // If its own NICs hold nothing, cancel() closes links as needed and must report fenced. The memory of a transfer
  // whose bytes have moved is free even while its notification waits for a link.
  if (!result->fenced && timeout >= kClosesLinks && undisturbed)
    oracle_.fail("#" + std::to_string(job.number) + " is not fenced, although nothing holds it at its own end");
}

// Deregisters a region under traffic, reuses its memory at once, and registers it again.
void Campaign::reregister_region(Application& app) {
  Arena& arena = *app.arenas[random_.below(app.arenas.size())];
  if (arena.unusable || !arena.region.id) return;
  const bool held = random_.chance(300);
  if (held) hold(app, random_.between(50, 30'000) * kMicrosecond);
  simulation_.note(app.host->index(), [] { return "deregisters a region"; });
  const Region region = arena.region;
  arena.region = {};
  const Status status = app.engine->deregister(region, held ? some_timeout(random_) : std::chrono::seconds(3));
  simulation_.note(app.host->index(), [&] { return "deregistered: " + status.to_string(); });
  for (const auto& other : applications_)
    for (auto& known : other->known)
      if (known.application == &app && !known.regions.empty())
        for (std::size_t i = 0; i < app.arenas.size() && i < known.regions.size(); ++i)
          if (app.arenas[i].get() == &arena) known.regions[i] = {};
  if (app.dead) return;
  ++(status ? oracle_.coverage.deregisters_fenced : oracle_.coverage.deregisters_not_fenced);
  if (!status) {
    arena.unusable = true;
    if (status.code() != ErrorCode::not_fenced) return oracle_.fail("deregister: " + status.to_string());
    const std::string_view said = status.message();
    const std::string_view who = "held by ";
    if (said.find(who) == said.npos || said.find(who) + who.size() == said.size())
      oracle_.fail("deregister does not say who holds the region: " + status.to_string());
    return;
  }
  // Fenced: all of the memory is the application's alone, whatever is still in flight elsewhere.
  poll_and_handle(app);
  oracle_.region_is_free(app, arena);
  const auto again = app.engine->register_memory(arena.data(), arena.size(), Access::all);
  if (again)
    arena.region = *again;
  else
    oracle_.fail("registering the memory again failed: " + again.status().to_string());
}

// Promise 8: a killed process is detected within 20 ms; a frozen or cut-off one within the peer timeout plus a tenth.
// And no peer is given up without a fault.

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
