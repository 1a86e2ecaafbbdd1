#include "sim/campaign.h"

#include <algorithm>
#include <array>

#include "engine/open.h"

namespace fairway::sim {

namespace {

SimulationOptions options_of(const SimulationRequest& request) {
  SimulationOptions options;
  options.seed = request.seed;
  options.trace = request.trace;
  options.hopeless = request.hopeless;
  options.most_time = 120 * kSecond;
  options.drift = request.drift;
  options.most_events = 2'000'000;
  return options;
}

constexpr std::uint32_t kArenaBytes = 16 * 1024;
constexpr std::uint32_t kArenas = 2;  // per application

}  // namespace

Campaign::Campaign(const SimulationRequest& request)
    : request_(request),
      simulation_([&] {
        SimulationOptions options = options_of(request);
        options.stuck = [this](const std::string& why) { oracle_.fail("stuck: " + why); };
        return options;
      }()),
      random_(request.seed * 2 + 1),
      scenario_(make_scenario(random_, request.faults)),
      fabric_(simulation_),
      oracle_(simulation_, fabric_) {
  if (scenario_.faulty) ++faults_injected_;
  // Small immediates, and some with random high bits, which include the bits that engines use themselves.
  for (std::uint32_t i = 0; i < kCounters; ++i)
    oracle_.counter_values[i] = i + (random_.chance(400) ? 0 : static_cast<std::uint32_t>(random_.next()) & ~3u);
}

SimulationReport Campaign::run() {
  for (std::size_t place = 0; place < scenario_.engines; ++place) open(place);
  connect_all();
  plan_faults();
  for (std::uint32_t i = 0; i < scenario_.operations && !oracle_.failed(); ++i) {
    simulation_.run_until(simulation_.now() + random_.below(2 * scenario_.pace));
    random_action();
    check_all();
  }
  finish();
  SimulationReport result;
  report(result);
  return result;
}

Application& Campaign::open(std::size_t place) {
  auto app = std::make_unique<Application>();
  app->host = &simulation_.add_host(place);
  app->place = place;
  app->name = "h" + std::to_string(app->host->index());
  auto loopback = fabric_.plug_in(*app->host, scenario_.devices[place]);
  EngineOptions options = scenario_.options[place];
  options.name = app->name;
  options.listen = app->host->address() + ":7000";
  app->options = options;
  auto opened = EngineAccess::open(
      options, app->host->runtime(),
      [loopback](transport::RegionTable& regions, Runtime& runtime) {
        std::vector<std::unique_ptr<transport::Transport>> transports;
        transports.push_back(transport::open_loopback_transport(loopback, regions, runtime));
        return transports;
      },
      nullptr, nullptr, scenario_.at_once);
  if (!opened) {
    oracle_.fail("open: " + opened.status().to_string());
  } else {
    app->engine = std::make_unique<Engine>(std::move(*opened));
    for (std::uint32_t i = 0; i < kArenas; ++i) {
      auto arena = std::make_unique<Arena>(kArenaBytes, random_);
      const auto region = app->engine->register_memory(arena->data(), arena->size(), Access::all);
      if (region)
        arena->region = *region;
      else
        oracle_.fail("register_memory: " + region.status().to_string());
      app->arenas.push_back(std::move(arena));
    }
    if (options.progress == Progress::caller) begin_program(*app);
  }
  applications_.push_back(std::move(app));
  return *applications_.back();
}

Application* Campaign::live_application(std::size_t place) {
  for (const auto& app : applications_)
    if (app->place == place && app->engine && !app->dead) return app.get();
  return nullptr;
}

// Connects every pair that is not connected yet; some pairs from both sides.
void Campaign::connect_all() {
  for (std::size_t i = 0; i < scenario_.engines; ++i)
    for (std::size_t k = 0; k < scenario_.engines; ++k) {
      Application* from = live_application(i);
      Application* to = live_application(k);
      if (i == k || !from || !to || !from->runs()) continue;
      const auto* known = from->knows(*to);
      if (known && known->up && !random_.chance(100)) continue;
      if (!known && i > k && !random_.chance(300)) continue;
      const auto peer = from->engine->connect(to->engine->address(), std::chrono::milliseconds(500));
      // No link comes up while the peer's application computes, nor at once when it stops.
      const bool computed = to->computing_until + 10 * kMillisecond > simulation_.now();
      const ErrorCode code = peer.status().code();
      const bool excused = code == ErrorCode::unsupported || (code == ErrorCode::timed_out && computed);
      if (!peer && faults_injected_ == 0 && !to->dead && !excused)
        oracle_.fail("connect " + from->name + " to " + to->name + ": " + peer.status().to_string());
      for (const auto& app : applications_) handle_peer_events(*app);
    }
  for (const auto& app : applications_) import_regions(*app);
}

// Handles the engine's peer events: updates the peers that the application knows.
void Campaign::handle_peer_events(Application& app) {
  if (!app.engine || app.dead) return;
  drain_peer_events(app);
  for (; !app.unhandled_events.empty(); app.unhandled_events.pop_front()) {
    const PeerEvent& event = app.unhandled_events.front();
    if (event.kind == PeerEvent::Kind::down)
      for (auto& known : app.known)
        if (known.peer == event.peer) known.up = false;
    if (event.kind != PeerEvent::Kind::up) continue;
    for (const auto& other : applications_) {
      if (other->name != event.name || other.get() == &app) continue;
      Application::KnownPeer* known = app.knows(*other);
      if (!known) known = &app.known.emplace_back();
      if (known->up && known->peer != event.peer) oracle_.fail(app.name + " sees " + other->name + " twice");
      *known = {other.get(), event.peer, true, {}};
    }
  }
}

void Campaign::import_regions(Application& app) {
  if (!app.runs()) return;
  for (auto& known : app.known) {
    if (!known.up || known.application->dead) continue;
    known.regions.resize(known.application->arenas.size());
    for (std::size_t i = 0; i < known.regions.size(); ++i) {
      const Arena& arena = *known.application->arenas[i];
      if (known.regions[i].id || !arena.region.id || arena.unusable) continue;
      const auto description = known.application->engine->describe(arena.region);
      if (!description) continue;
      const auto region = app.engine->import_region(known.peer, *description);
      if (region)
        known.regions[i] = *region;
      else if (faults_injected_ == 0)
        oracle_.fail("import_region: " + region.status().to_string());
    }
  }
}

void Campaign::plan_faults() {
  for (const Scenario::Planned& planned : scenario_.faults) plan(planned);
}

void Campaign::plan(const Scenario::Planned& planned) {
  faults_.push_back(std::make_unique<FaultEvent>(FaultEvent{this, planned}));
  simulation_.in(planned.at, &Campaign::inject_fault, faults_.back().get());
}

void Campaign::inject_fault(void* object, std::uint64_t, std::uint64_t) {
  FaultEvent& event = *static_cast<FaultEvent*>(object);
  Campaign& self = *event.campaign;
  const Scenario::Planned& planned = event.planned;
  Application* a = self.live_application(planned.a);
  Application* b = self.live_application(planned.b);
  if (!a || !b || self.faults_over_) return;
  ++self.faults_injected_;
  using Fault = Scenario::Fault;
  switch (planned.fault) {
    case Fault::break_link: return self.fabric_.break_between(*a->host, *b->host);
    case Fault::device_down:
      return self.fabric_.break_device(*a->host, planned.b % self.scenario_.devices[a->place].size(), planned.lasts);
    case Fault::partition:
      self.simulation_.set_partition(a->host->index(), b->host->index(), true);
      self.partition_changed(*a->host, *b->host);
      break;
    case Fault::one_way:
    case Fault::slow_path:
    case Fault::mtu_hole:
      self.change_path(*a->host, *b->host, planned);
      event.planned.a = static_cast<std::uint32_t>(a->host->index());
      event.planned.b = static_cast<std::uint32_t>(b->host->index());
      return self.simulation_.in(planned.lasts, &Campaign::recover, object);
    case Fault::freeze:
      a->host->freeze();
      a->disturbed = self.simulation_.now();
      break;
    case Fault::kill: self.kill(*a); break;
    case Fault::cut_control:
      a->disturbed = b->disturbed = self.simulation_.now();
      return a->host->network().cut(b->host->network());
    case Fault::hold: return self.hold(*a, planned.lasts);
  }
  self.expect_death(*a, planned);
  if (planned.fault == Fault::partition) self.expect_death(*b, planned);
  event.planned.a = static_cast<std::uint32_t>(a->host->index());
  event.planned.b = static_cast<std::uint32_t>(b->host->index());
  self.simulation_.in(planned.lasts, &Campaign::recover, object);
}

void Campaign::recover(void* object, std::uint64_t, std::uint64_t) {
  FaultEvent& event = *static_cast<FaultEvent*>(object);
  Campaign& self = *event.campaign;
  Host& host = self.simulation_.host(event.planned.a);
  if (event.planned.fault == Scenario::Fault::partition) {
    self.simulation_.set_partition(event.planned.a, event.planned.b, false);
    self.partition_changed(host, self.simulation_.host(event.planned.b));
  }
  if (event.planned.fault == Scenario::Fault::one_way || event.planned.fault == Scenario::Fault::slow_path ||
      event.planned.fault == Scenario::Fault::mtu_hole)
    return self.change_path(host, self.simulation_.host(event.planned.b), {});
  if (event.planned.fault != Scenario::Fault::freeze) return;
  host.thaw();
  for (const auto& app : self.applications_)
    if (app->host == &host) app->disturbed = self.simulation_.now();
  host.signalled();
}

// Back to normal, where no such fault is given.
void Campaign::change_path(const Host& a, const Host& b, const Scenario::Planned& planned) {
  Path &out = simulation_.path(a.index(), b.index()), &back = simulation_.path(b.index(), a.index());
  out = back = {};
  using Fault = Scenario::Fault;
  SimulationCoverage& met = oracle_.coverage;
  if (planned.lasts != 0)
    ++(planned.fault == Fault::one_way     ? met.one_way_cuts
       : planned.fault == Fault::slow_path ? met.slow_paths
                                           : met.mtu_holes);
  out.cut = planned.lasts != 0 && planned.fault == Fault::one_way;
  if (planned.lasts != 0 && planned.fault == Fault::mtu_hole)
    out.longest = back.longest = static_cast<std::uint32_t>(random_.between(64, 1400));
  if (planned.fault == Fault::slow_path) {
    out.bytes_per_second = random_.between(1'000'000, 20'000'000);
    out.delay = random_.below(30 * kMillisecond);
    back = out;
  }
  partition_changed(a, b);
}

void Campaign::kill(Application& app) {
  app.dead = true;
  app.disturbed = simulation_.now();
  app.host->kill();
  fabric_.host_killed(*app.host);
}

// Polls the engine as an application's own loop would: completions, notifications, peer events.
void Campaign::poll_engine(Application& app) {
  if (!app.runs()) return;
  std::array<Completion, 8> completions;
  for (;;) {
    const std::size_t count = app.engine->poll(completions);
    for (const Completion& completion : std::span(completions).first(count))
      oracle_.completed(*static_cast<Job*>(completion.user_data), completion);
    if (count < completions.size()) break;
  }
  for (Job& job : oracle_.jobs()) {
    if (job.from != &app || !job.accepted || job.completed || job.deliver != Deliver::to_wait) continue;
    const auto completion = app.engine->wait(job.id, Timeout(0));
    if (completion)
      oracle_.completed(job, *completion);
    else if (completion.status().code() != ErrorCode::timed_out && app.runs())
      oracle_.fail("wait() for #" + std::to_string(job.number) + ": " + completion.status().to_string());
  }
  oracle_.drain_notifications(app);
  drain_peer_events(app);
}

// Polls the engine and handles its peer events.
void Campaign::poll_and_handle(Application& app) {
  poll_engine(app);
  if (app.runs()) handle_peer_events(app);
}

// Ends all faults and everything in flight, closes the engines, and checks that nothing happens any more.
void Campaign::finish() {
  const auto waits = [](const Job& job) {
    return job.accepted && !job.completed && !job.from->dead && job.operation != Operation::receive &&
           job.operation != Operation::send;
  };
  // Allow for the longest fault, a peer timeout and a margin. Add a second per transfer: a transfer that its target
  // refuses may break its link, as with RDMA reliable connections, and is retried within a second.
  const auto waiting = std::ranges::count_if(oracle_.jobs(), waits);
  const Time end = simulation_.now() + (8 + static_cast<Time>(waiting)) * kSecond;
  const auto all_done = [&] { return std::ranges::none_of(oracle_.jobs(), waits); };
  while ((!all_done() || watches_due_ != 0) && simulation_.now() < end && !oracle_.failed()) {
    simulation_.run_until(std::min(end, simulation_.now() + 5 * kMillisecond));
    check_all();
  }
  const bool gave_up = oracle_.failed();
  for (Job& job : oracle_.jobs())
    if (!gave_up && waits(job) && job.from->runs())
      oracle_.fail("transfer #" + std::to_string(job.number) + " did not complete");
  for (const auto& app : applications_) {
    if (app->dead) continue;
    app->host->thaw();
    app->computing_until = 0;
    app->host->signalled();
  }
  simulation_.run_until(simulation_.now() + 5 * kMillisecond);
  for (const auto& app : applications_)
    if (!app->dead) app->host->thaw();  // a freeze may have come meanwhile
  check_all();
  for (const auto& app : applications_)
    if (app->runs() && !oracle_.failed()) oracle_.check_unexpected(*app);
  for (const auto& app : applications_)
    if (!oracle_.failed()) oracle_.check_counters(*app);
  faults_over_ = true;
  close_all();
}

void Campaign::close_all() {
  // First let dead hosts run down, cut off from everyone: their objects must still come to rest.
  for (const auto& app : applications_) {
    if (app->dead) app->host->bury();
  }
  for (const auto& app : applications_)
    if (app->engine) {
      simulation_.note(app->host->index(), [] { return "closes"; });
      app->engine->close();
      for (Job& job : oracle_.jobs()) {
        if (job.from != app.get() || job.completed || !job.accepted || app->dead) continue;
        if (job.deliver == Deliver::to_wait) {
          const auto completion = app->engine->wait(job.id, Timeout(0));
          if (completion) oracle_.completed(job, *completion);
        }
      }
      std::array<Completion, 8> completions;
      for (std::size_t count = 8; count == 8;) {
        count = app->engine->poll(completions);
        for (const Completion& completion : std::span(completions).first(count))
          oracle_.completed(*static_cast<Job*>(completion.user_data), completion);
      }
      oracle_.check_memory(*app);
      if (!app->dead)  // its engine is closed, so nothing can write to its memory, fenced or not
        for (const auto& arena : app->arenas) arena->reclaim();
    }
  simulation_.run_until(simulation_.now() + kSecond);
  oracle_.check_end(applications_);
  if (fabric_.open_ends() != 0) oracle_.fail("links are still open after every engine closed");
  simulation_.run_until(simulation_.now() + 10 * kSecond);  // longer than any fault
  const std::uint64_t before = simulation_.events_run();
  simulation_.run_until(simulation_.now() + 10 * kSecond);
  if (simulation_.events_run() != before) oracle_.fail("events still happen after all engines closed");
  for (const auto& app : applications_) app->engine.reset();
}

void Campaign::report(SimulationReport& result) {
  result.seed = request_.seed;
  result.passed = !oracle_.failed();
  result.failure = oracle_.failure();
  result.hash = simulation_.hash();
  result.events = simulation_.events_run();
  result.virtual_us = simulation_.now() / kMicrosecond;
  result.engines = static_cast<std::uint32_t>(applications_.size());
  result.transfers = oracle_.accepted;
  result.succeeded = oracle_.succeeded;
  result.faults = faults_injected_;
  result.late_landed = fabric_.late_frames_landed();
  result.late_stopped = fabric_.late_frames_stopped();
  result.coverage = oracle_.coverage;
  result.coverage.moves_at_once = fabric_.moved_at_once();
  result.coverage.sends_at_once = fabric_.sent_at_once();
  result.coverage.drifting_clocks = simulation_.drifting_clocks();
}

}  // namespace fairway::sim

namespace fairway {

SimulationReport simulate(const SimulationRequest& request) {
  return sim::Campaign(request).run();
}

}  // namespace fairway
