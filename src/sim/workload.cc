#include <algorithm>
#include <array>
#include <cstring>

#include "sim/campaign.h"

// The random actions of a campaign's applications, and those that drive their engine's progress.
namespace fairway::sim {

namespace {
constexpr std::uint64_t kUnreceivedTag = 9;  // a tag without receives
}

void Campaign::check_all() {
  for (const auto& app : applications_) {
    poll_and_handle(*app);
    oracle_.check_memory(*app);
  }
  oracle_.check_order();
}

Application* Campaign::random_application() {
  for (int tries = 0; tries < 8; ++tries) {
    Application* app = live_application(random_.below(scenario_.engines));
    if (app && app->runs()) return app;
  }
  return nullptr;
}

void Campaign::random_action() {
  const std::uint64_t what = random_.below(1000);
  if (what < 30) {  // restart a dead machine
    for (std::size_t place = 0; place < scenario_.engines; ++place)
      if (!live_application(place)) open(place);
    return connect_all();
  }
  Application* app = random_application();
  if (!app) return;
  if (what < 50) return connect_all();
  if (what < 110) return cancel_one(*app);
  if (what < 140) return reregister_region(*app);
  if (app->options.progress == Progress::caller && what < 190) return compute(*app);
  if (app->known.empty()) return;
  import_regions(*app);
  Application::KnownPeer& to = app->known[random_.below(app->known.size())];
  if (scenario_.unreceived_sends && what < 200) {
    for (std::uint64_t burst = random_.between(4, 16); burst > 0; --burst) submit(*app, to, true);
    return;
  }
  for (std::uint64_t burst = random_.chance(200) ? random_.between(2, 10) : 1; burst > 0; --burst) submit(*app, to);
  // A link that breaks with slices in flight finds more bugs than one that breaks idle.
  if (!scenario_.faults.empty() && random_.chance(120)) {
    Scenario::Planned planned;
    planned.at = random_.below(random_.chance(500) ? 10 * kMicrosecond : 100 * kMicrosecond);
    const bool hits_device = random_.chance(300);
    planned.fault = hits_device ? Scenario::Fault::device_down : Scenario::Fault::break_link;
    planned.a = static_cast<std::uint32_t>(app->place);
    planned.b = static_cast<std::uint32_t>(to.application->place);
    planned.lasts = random_.below(5 * kMillisecond);
    plan(planned);
  }
}

void Campaign::submit(Application& from, Application::KnownPeer& to, bool unexpected) {
  if (to.application->dead && random_.chance(700)) return;
  if (oracle_.jobs().size() == kMaxJobs) return;
  const std::uint32_t number = static_cast<std::uint32_t>(oracle_.jobs().size());
  Job& job = oracle_.new_job();
  job.from = &from;
  job.to = to.application;
  job.peer = to.peer;
  Request request;
  request.peer = to.peer;
  const std::uint64_t what = unexpected ? 75 : random_.below(100);
  job.small = !unexpected && what < 70 && scenario_.at_once && random_.chance(700);
  job.operation = what < 50   ? Operation::write
                  : what < 70 ? Operation::read
                  : what < 80 ? Operation::send
                  : what < 92 ? Operation::receive
                              : Operation::fetch_add;
  request.operation = job.operation;
  const std::uint32_t length =
      static_cast<std::uint32_t>(unexpected                         ? random_.between(100, 400)
                                 : random_.chance(100)              ? 0
                                 : job.small || random_.chance(600) ? random_.between(1, 300)
                                                                    : random_.between(1, scenario_.largest));
  bool ready = false;
  switch (job.operation) {
    case Operation::write:
    case Operation::read: ready = choose_layout(job, request, to, length); break;
    case Operation::send:
    case Operation::receive: ready = prepare_two_sided(job, request, length); break;
    default: ready = prepare_atomic(job, request, to); break;
  }
  if (!ready) return;
  if (unexpected) request.tag = job.tag = kUnreceivedTag;
  add_options(job, request);
  TransferId id;
  job.accepted = true;  // its completion may come before submit() returns
  job.submitted = simulation_.now();
  const Submitted submitted = from.engine->submit({&request, 1}, {&id, 1});
  job.accepted = submitted.taken == 1;
  job.id = id;
  simulation_.note(from.host->index(), [&] {
    return "#" + std::to_string(number) + " operation " + std::to_string(static_cast<int>(job.operation)) + " of " +
           std::to_string(job.length) + " bytes to " + to.application->name + " notify " +
           std::to_string(static_cast<int>(job.notify)) + " by " +
           std::array{"wait", "poll", "callback"}[static_cast<unsigned>(job.deliver)] +
           (job.after ? " after #" + std::to_string(job.after->number) : "") +
           (job.accepted ? "" : " refused: " + submitted.status.to_string());
  });
  if (job.accepted) {
    ++oracle_.accepted;
    return;
  }
  if (job.completed) oracle_.fail("a refused transfer completed");
  if (faults_injected_ == 0 && !submitted.status.is_ok() && submitted.status.code() != ErrorCode::queue_full)
    oracle_.fail("transfer #" + std::to_string(number) + " refused: " + submitted.status.to_string());
  oracle_.heal(job);
  job.settled = true;
  if (job.local_range.length != 0) job.local->release(job.local_range);
  if (job.remote_range.length != 0) job.remote->release(job.remote_range);
}

// Chooses memory on both sides and one of the four layouts over it.
bool Campaign::choose_layout(Job& job, Request& request, const Application::KnownPeer& to, std::uint32_t length) {
  if (to.regions.empty()) return false;
  const std::size_t which = job.small ? 0 : random_.below(to.regions.size());
  job.local = job.from->arenas[job.small ? 0 : random_.below(job.from->arenas.size())].get();
  job.remote = to.application->arenas[which].get();
  if (!to.regions[which].id || job.local->unusable || job.remote->unusable || !job.local->region.id) return false;
  const RegionId near = job.local->region.id;
  const RemoteRegionId far = to.regions[which].id;
  const std::uint64_t shape = job.small ? 0 : random_.below(10);
  const auto count = static_cast<std::uint32_t>(shape < 5 ? 1 : random_.between(1, 12));
  const std::uint32_t block = shape < 5 ? length : std::min<std::uint32_t>(length, 200);
  const auto gap_near = static_cast<std::uint32_t>(random_.below(20)),
             gap_far = static_cast<std::uint32_t>(random_.below(20));
  const std::uint32_t stride_near = block + gap_near, stride_far = block + gap_far;
  const auto lead_near = static_cast<std::uint32_t>(random_.below(9)),
             lead_far = static_cast<std::uint32_t>(random_.below(9));
  if (!job.local->take(lead_near + stride_near * count, random_, job.local_range)) return false;
  if (!job.remote->take(lead_far + stride_far * count, random_, job.remote_range)) {
    job.local->release(job.local_range);
    return false;
  }
  job.length = block * count;
  const std::uint64_t at_near = job.local_range.begin + lead_near, at_far = job.remote_range.begin + lead_far;
  std::vector<std::uint32_t> order(count);
  for (std::uint32_t i = 0; i < count; ++i) order[i] = i;
  if (shape >= 8)
    for (std::uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  for (std::uint32_t i = 0; i < count; ++i)
    job.pieces.push_back({lead_near + stride_near * i, lead_far + stride_far * order[i], block});
  const Extent first{{near, at_near, block}, {far, at_far}};
  if (shape < 5) {
    request.layout = first;
  } else if (shape < 6) {
    for (const Job::Piece& piece : job.pieces)
      job.extents.push_back(
          {{near, job.local_range.begin + piece.local, piece.length}, {far, job.remote_range.begin + piece.remote}});
    request.layout = std::span<const Extent>(job.extents);
  } else if (shape < 8) {
    request.layout = Strided{first, stride_near, stride_far, count};
  } else {
    for (const Job::Piece& piece : job.pieces) {
      job.local_index.push_back(job.local_range.begin + piece.local);
      job.remote_index.push_back(job.remote_range.begin + piece.remote);
    }
    request.layout = Paged{near, far, block, 1, 1, job.local_index, job.remote_index};
  }
  return block != 0 || shape < 5;
}

bool Campaign::prepare_two_sided(Job& job, Request& request, std::uint32_t length) {
  job.local = job.from->arenas.front().get();
  if (!job.local->region.id || job.local->unusable) return false;
  const auto room = job.operation == Operation::receive ? std::max<std::uint32_t>(length, 256) : length;
  if (!job.local->take(room, random_, job.local_range)) return false;
  job.length = room;
  job.tag = random_.below(2);
  request.tag = job.tag;
  request.layout = Extent{{job.local->region.id, job.local_range.begin, room}, {}};
  if (job.operation == Operation::receive) return true;
  for (std::uint32_t i = 0; i < room; ++i) job.local->data()[job.local_range.begin + i] = pattern(job.number, i);
  if (room >= 4) std::memcpy(job.local->data() + job.local_range.begin, &job.number, 4);
  return true;
}

// Reserves a cell for this job alone, so that the sum is known: the pattern plus the operand.
bool Campaign::prepare_atomic(Job& job, Request& request, const Application::KnownPeer& to) {
  if (to.regions.empty()) return false;
  const std::size_t which = random_.below(to.regions.size());
  job.remote = to.application->arenas[which].get();
  if (!to.regions[which].id || job.remote->unusable) return false;
  if (!job.remote->take(8, random_, job.remote_range)) return false;
  request.target = {to.regions[which].id, job.remote_range.begin};
  request.operand = random_.between(1, 1000);
  job.operand = request.operand;
  job.length = 8;
  return true;
}

void Campaign::add_options(Job& job, Request& request) {
  RequestOptions& options = request.options;
  if (job.operation == Operation::write && random_.chance(500)) {
    job.notify = options.notify.kind = random_.chance(700) ? NotifyKind::event : NotifyKind::counter;
    options.notify.immediate = job.notify == NotifyKind::event
                                   ? job.number | (scenario_.immediate_bits & ~(kMaxJobs - 1))
                                   : oracle_.counter_values[random_.below(kCounters)];
    job.immediate = options.notify.immediate;
    if (job.notify == NotifyKind::event && !job.small && random_.chance(400)) {
      job.message.resize(random_.between(1, kMaxNotifyMessage));
      for (std::size_t i = 0; i < job.message.size(); ++i) job.message[i] = pattern(job.number, i);
      options.notify.message = job.message;
    }
  }
  if (random_.chance(150) && job.operation != Operation::receive && job.number > 0) {
    Job& before = oracle_.job(static_cast<std::uint32_t>(random_.below(job.number)));
    // Deliver by callback, so that the end is observed when it happens.
    if (before.accepted && !before.completed && before.deliver == Deliver::to_callback && before.from == job.from &&
        before.operation != Operation::receive && before.operation != Operation::send) {
      job.after = &before;
      options.after = before.id;
    }
  }
  if (random_.chance(50)) options.deadline = std::chrono::microseconds(random_.between(10, 20'000));
  options.checksum = job.checksum = random_.chance(scenario_.garbles ? 250 : 100);
  if (scenario_.garbles && job.checksum && job.length != 0 && job.local != nullptr &&
      job.operation != Operation::receive && random_.chance(500)) {
    // Corrupts one byte of it, preferably at the edge of a piece, which careless code misses.
    const Job::Piece whole{0, 0, job.length};
    const Job::Piece& piece = job.pieces.empty() ? whole : job.pieces[random_.below(job.pieces.size())];
    const std::uint32_t last = piece.length - 1;
    oracle_.garble(job, piece.local + static_cast<std::uint32_t>(random_.chance(500)   ? last
                                                                 : random_.chance(300) ? 0
                                                                                       : random_.between(0, last)));
  }
  options.priority = static_cast<Priority>(random_.below(3));
  const std::uint64_t how = job.small ? random_.between(6, 9) : random_.below(10);
  options.deliver = job.deliver = how < 6 ? Deliver::to_callback : how < 8 ? Deliver::to_poll : Deliver::to_wait;
  options.callback = job.deliver == Deliver::to_callback ? &Oracle::on_completion : nullptr;
  options.user_data = &job;
}

// Applications that drive their engine's progress (Progress::caller) in the loop that also computes. While they
// compute, nothing of their engine runs except control.

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
