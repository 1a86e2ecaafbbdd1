#include <algorithm>

#include "sim/campaign.h"

// Applications that drive their engine's progress (Progress::caller) in the loop that also computes. While they
// compute, nothing of their engine runs except control.
namespace fairway::sim {

namespace {

constexpr Time kLook = 10 * kMillisecond;  // how often to check deadlines, which wake no application

}  // namespace

void Campaign::begin_program(Application& app) {
  programs_.push_back(std::make_unique<Program>(Program{this, &app}));
  app.host->on_signal(&Campaign::serve_soon, programs_.back().get());
  (void)app.engine->fd();  // enables signals: the handler is called when there is something to do
  simulation_.in(kLook, &Campaign::serve, programs_.back().get(), 1);
}

void Campaign::serve_soon(void* object, std::uint64_t, std::uint64_t) {
  const Program& program = *static_cast<Program*>(object);
  if (std::exchange(program.app->serve_due, true)) return;
  Campaign& self = *program.campaign;
  self.simulation_.in(self.simulation_.random().between(200, 5'000), &Campaign::serve, object);
}

void Campaign::serve(void* object, std::uint64_t regular, std::uint64_t) {
  const Program& program = *static_cast<Program*>(object);
  Campaign& self = *program.campaign;
  Application& app = *program.app;
  if (regular == 0) app.serve_due = false;
  if (!app.engine || app.dead || self.faults_over_) return;
  if (app.runs()) self.poll_engine(app);
  const Time next = std::max(app.computing_until, self.simulation_.now() + kLook);
  if (regular != 0) self.simulation_.at(next, &Campaign::serve, object, 1);
}

// Computes for longer than some peer's timeout, but at most three times as long. Nothing may be lost, because control
// sends heartbeats while the application computes.
void Campaign::compute(Application& app) {
  Time longest = 0;
  for (const auto& other : applications_)
    if (other.get() != &app && !other->dead)
      longest = std::max<Time>(longest, std::chrono::nanoseconds(other->options.peer_timeout).count());
  if (longest == 0) return;
  const Time lasts = longest + random_.below(longest / 2);
  simulation_.note(app.host->index(), [&] { return "computes for " + std::to_string(lasts / kMicrosecond) + " us"; });
  app.computing_until = simulation_.now() + lasts;
  ++oracle_.coverage.computations;
}

}  // namespace fairway::sim
