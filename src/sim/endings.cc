#include <algorithm>

#include "sim/campaign.h"

// Transfers and regions that end before their time, also while a NIC sits on their slices: what is said to be fenced is
// used for something else at once, and what is not is left alone.
namespace fairway::sim {

namespace {

constexpr Timeout kClosesLinks = std::chrono::milliseconds(14);  // half of it is longer than any fence

// Often shorter than a hold, so that nobody can know in time.
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
    Application::Acquaintance& to = app.known[random_.below(app.known.size())];
    for (std::uint64_t burst = random_.between(1, 3); burst > 0; --burst) submit(app, to);
    simulation_.run_until(simulation_.now() + random_.below(30 * kMicrosecond));
    hold(random_.chance(500) ? app : *to.who, random_.between(50, 40'000) * kMicrosecond);
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
  take(app);  // its completion, where it has one
  if (!result) return;
  oracle_.cancelled(job, *result);
  // What its own NICs do not hold is ended by closing links, if need be; of one that was moved and whose notification
  // waits for a link the memory is free.
  if (!result->fenced && timeout >= kClosesLinks && undisturbed)
    oracle_.fail("#" + std::to_string(job.number) + " is not fenced, though nothing holds it at its own end");
}

// Deregisters one of its regions under whatever traffic there is, uses the memory at once, and registers it again.
void Campaign::exchange_region(Application& app) {
  Arena& arena = *app.arenas[random_.below(app.arenas.size())];
  if (arena.given_up || !arena.region.id) return;
  const bool held = random_.chance(300);
  if (held) hold(app, random_.between(50, 30'000) * kMicrosecond);
  simulation_.note(app.host->index(), [] { return "deregisters a region"; });
  const Region region = arena.region;
  arena.region = {};
  const Status status = app.engine->deregister(region, held ? some_timeout(random_) : std::chrono::seconds(3));
  simulation_.note(app.host->index(), [&] { return "deregistered: " + status.to_string(); });
  for (const auto& other : applications_)
    for (auto& known : other->known)
      if (known.who == &app && !known.regions.empty())
        for (std::size_t i = 0; i < app.arenas.size() && i < known.regions.size(); ++i)
          if (app.arenas[i].get() == &arena) known.regions[i] = {};
  if (app.dead) return;
  ++(status ? oracle_.coverage.deregisters_fenced : oracle_.coverage.deregisters_not_fenced);
  if (!status) {
    arena.given_up = true;
    if (status.code() != ErrorCode::not_fenced) return oracle_.fail("deregister: " + status.to_string());
    const std::string_view said = status.message();
    const std::string_view who = "held by ";
    if (said.find(who) == said.npos || said.find(who) + who.size() == said.size())
      oracle_.fail("deregister names nobody: " + status.to_string());
    return;
  }
  // Fenced: the memory is the application's alone, all of it, whatever is still in flight elsewhere.
  collect(app);
  oracle_.region_is_free(app, arena);
  const auto again = app.engine->register_memory(arena.data(), arena.size(), Access::all);
  if (again)
    arena.region = *again;
  else
    oracle_.fail("register_memory again: " + again.status().to_string());
}

}  // namespace fairway::sim
