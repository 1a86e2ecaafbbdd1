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
      scenario_(make_scenario(random_)),
      fabric_(simulation_),
      oracle_(simulation_, fabric_) {
  if (scenario_.faulty) ++faults_struck_;
  // Immediates that engines pass on as they are, and some that have the engines' own bits set.
  for (std::uint32_t i = 0; i < kCounters; ++i)
    oracle_.counter_values[i] = i + (random_.chance(400) ? 0 : static_cast<std::uint32_t>(random_.next()) & ~3u);
}

SimulationReport Campaign::run() {
  for (std::size_t place = 0; place < scenario_.engines; ++place) open(place);
  connect_all();
  plan_faults();
  for (std::uint32_t i = 0; i < scenario_.operations && !oracle_.failed(); ++i) {
    simulation_.run_until(simulation_.now() + random_.below(2 * scenario_.pace));
    act();
    check_all();
  }
  wind_up();
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
  auto opened =
      EngineAccess::open(options, app->host->runtime(), [loopback](transport::RegionTable& regions, Runtime& runtime) {
        std::vector<std::unique_ptr<transport::Transport>> transports;
        transports.push_back(transport::open_loopback_transport(loopback, regions, runtime));
        return transports;
      });
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

Application* Campaign::living(std::size_t place) {
  for (const auto& app : applications_)
    if (app->place == place && app->engine && !app->dead) return app.get();
  return nullptr;
}

// Everyone to everyone that is not known yet; some pairs from both sides.
void Campaign::connect_all() {
  for (std::size_t i = 0; i < scenario_.engines; ++i)
    for (std::size_t k = 0; k < scenario_.engines; ++k) {
      Application* from = living(i);
      Application* to = living(k);
      if (i == k || !from || !to || !from->runs()) continue;
      const auto* known = from->knows(*to);
      if (known && known->up && !random_.chance(100)) continue;
      if (!known && i > k && !random_.chance(300)) continue;
      const auto peer = from->engine->connect(to->engine->address(), std::chrono::milliseconds(500));
      // No link comes up while its caller computes, nor at once when it stops.
      const bool computed = to->computing_until + 10 * kMillisecond > simulation_.now();
      const ErrorCode code = peer.status().code();
      const bool excused = code == ErrorCode::unsupported || (code == ErrorCode::timed_out && computed);
      if (!peer && faults_struck_ == 0 && !to->dead && !excused)
        oracle_.fail("connect " + from->name + " to " + to->name + ": " + peer.status().to_string());
      for (const auto& app : applications_) meet(*app);
    }
  for (const auto& app : applications_) import_regions(*app);
}

// Whom the engine says it sees.
void Campaign::meet(Application& app) {
  if (!app.engine || app.dead) return;
  hear(app);
  for (; !app.heard.empty(); app.heard.pop_front()) {
    const PeerEvent& event = app.heard.front();
    if (event.kind == PeerEvent::Kind::down)
      for (auto& known : app.known)
        if (known.peer == event.peer) known.up = false;
    if (event.kind != PeerEvent::Kind::up) continue;
    for (const auto& other : applications_) {
      if (other->name != event.name || other.get() == &app) continue;
      Application::Acquaintance* known = app.knows(*other);
      if (!known) known = &app.known.emplace_back();
      if (known->up && known->peer != event.peer) oracle_.fail(app.name + " sees " + other->name + " twice");
      *known = {other.get(), event.peer, true, {}};
    }
  }
}

void Campaign::import_regions(Application& app) {
  if (!app.runs()) return;
  for (auto& known : app.known) {
    if (!known.up || known.who->dead) continue;
    known.regions.resize(known.who->arenas.size());
    for (std::size_t i = 0; i < known.regions.size(); ++i) {
      const Arena& arena = *known.who->arenas[i];
      if (known.regions[i].id || !arena.region.id || arena.given_up) continue;
      const auto description = known.who->engine->describe(arena.region);
      if (!description) continue;
      const auto region = app.engine->import_region(known.peer, *description);
      if (region)
        known.regions[i] = *region;
      else if (faults_struck_ == 0)
        oracle_.fail("import_region: " + region.status().to_string());
    }
  }
}

void Campaign::plan_faults() {
  for (const Scenario::Planned& planned : scenario_.faults) plan(planned);
}

void Campaign::plan(const Scenario::Planned& planned) {
  faults_.push_back(std::make_unique<FaultEvent>(FaultEvent{this, planned}));
  simulation_.in(planned.at, &Campaign::strike, faults_.back().get());
}

void Campaign::strike(void* object, std::uint64_t, std::uint64_t) {
  FaultEvent& event = *static_cast<FaultEvent*>(object);
  Campaign& self = *event.campaign;
  const Scenario::Planned& planned = event.planned;
  Application* a = self.living(planned.a);
  Application* b = self.living(planned.b);
  if (!a || !b || self.faults_over_) return;
  ++self.faults_struck_;
  using Fault = Scenario::Fault;
  switch (planned.fault) {
    case Fault::break_link: return self.fabric_.break_between(*a->host, *b->host);
    case Fault::device_down:
      return self.fabric_.break_device(*a->host, planned.b % self.scenario_.devices[a->place].size(), planned.lasts);
    case Fault::partition:
      self.simulation_.set_partition(a->host->index(), b->host->index(), true);
      self.cut_off(*a->host, *b->host);
      break;
    case Fault::freeze:
      a->host->freeze();
      a->disturbed = self.simulation_.now();
      break;
    case Fault::kill: self.kill(*a); break;
    case Fault::cut_control:
      a->disturbed = b->disturbed = self.simulation_.now();
      return a->host->network().cut(*b->host);
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
    self.cut_off(host, self.simulation_.host(event.planned.b));
  }
  if (event.planned.fault != Scenario::Fault::freeze) return;
  host.thaw();
  for (const auto& app : self.applications_)
    if (app->host == &host) app->disturbed = self.simulation_.now();
  host.signalled();
}

void Campaign::kill(Application& app) {
  app.dead = true;
  app.disturbed = simulation_.now();
  app.host->kill();
  fabric_.host_killed(*app.host);
}

// What the application's own loop would do: take completions, notifications, peer events...
void Campaign::take(Application& app) {
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
      oracle_.fail("wait for #" + std::to_string(job.number) + ": " + completion.status().to_string());
  }
  oracle_.drain_notifications(app);
  hear(app);
}

// ... and act on what it heard.
void Campaign::collect(Application& app) {
  take(app);
  if (app.runs()) meet(app);
}

// Faults end, everything in flight ends, engines close, and then nothing moves any more.
void Campaign::wind_up() {
  const auto waits = [](const Job& job) {
    return job.accepted && !job.completed && !job.from->dead && job.operation != Operation::receive &&
           job.operation != Operation::send;
  };
  // The longest fault, a peer timeout, time to spare; and a second each, since a transfer that its target refuses may
  // break its link, as it does with RDMA's reliable connections, and that is tried again within a second.
  const auto waiting = std::count_if(oracle_.jobs().begin(), oracle_.jobs().end(), waits);
  const Time end = simulation_.now() + (8 + static_cast<Time>(waiting)) * kSecond;
  const auto all_done = [&] { return std::none_of(oracle_.jobs().begin(), oracle_.jobs().end(), waits); };
  while ((!all_done() || watches_due_ != 0) && simulation_.now() < end && !oracle_.failed()) {
    simulation_.run_until(std::min(end, simulation_.now() + 5 * kMillisecond));
    check_all();
  }
  const bool gave_up = oracle_.failed();
  for (Job& job : oracle_.jobs())
    if (!gave_up && waits(job) && job.from->runs())
      oracle_.fail("transfer #" + std::to_string(job.number) + " does not end");
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
  // The dead are buried first: cut off from everyone, their objects must still come to rest.
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
      if (!app->dead)  // nothing touches its memory any more, whoever could not say so before
        for (const auto& arena : app->arenas) arena->reclaim();
    }
  simulation_.run_until(simulation_.now() + kSecond);
  oracle_.check_end(applications_);
  if (fabric_.open_ends() != 0) oracle_.fail("links are open after every engine closed");
  simulation_.run_until(simulation_.now() + 10 * kSecond);  // longer than any fault
  const std::uint64_t before = simulation_.events_run();
  simulation_.run_until(simulation_.now() + 10 * kSecond);
  if (simulation_.events_run() != before) oracle_.fail("the engines are closed, but things go on happening");
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
  result.faults = faults_struck_;
  result.late_landed = fabric_.late_frames_landed();
  result.late_stopped = fabric_.late_frames_stopped();
  result.coverage = oracle_.coverage;
}

}  // namespace fairway::sim

namespace fairway {

SimulationReport simulate(const SimulationRequest& request) {
  return sim::Campaign(request).run();
}

}  // namespace fairway
