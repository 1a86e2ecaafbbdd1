#include "engine/workers.h"

#include <algorithm>
#include <string>

namespace fairway::engine {

Status Workers::open(const TransportFactory& factory, Waiting& waiting, SessionControl& sessions,
                     MachineDiscovery& machine) {
  const EngineOptions& options = tables_.options;
  for (std::uint16_t i = 0; i < options.workers; ++i) {
    auto transports = factory(tables_.regions, tables_.runtime);
    if (!transports) return transports.status();
    if (transports->size() > kMaxTransports)
      return {ErrorCode::invalid_argument,
              std::to_string(transports->size()) +
                  " transports are in use, at most 64 can be: name fewer in EngineOptions::transports or providers"};
    auto worker = std::make_unique<Worker>(i, tables_, *this, waiting, sessions, machine, std::move(*transports));
    TaskOptions task_options;
    task_options.name = "fairway-" + std::to_string(i);
    task_options.spin_ns = static_cast<Time>(std::chrono::nanoseconds(options.spin).count());
    task_options.caller_steps = options.progress == Progress::caller;
    task_options.signal = &waiting.signal();
    auto started = tables_.runtime.executor.start(task_options, *worker);
    if (!started) return started.status();
    Task& task = **started;
    worker->set_task(std::move(started).value());
    workers_.push_back(std::move(worker));
    Status attached;
    workers_.back()->call([&](Worker& owner) {
      for (const auto& transport : owner.transports())
        if (attached) attached = transport->attach(task).with_context(std::string(transport->name()));
    });
    if (!attached) return attached;
  }
  return {};
}

Status Workers::with_peer(PeerId id, const std::function<void(Worker&, Peer&)>& command) const {
  if (!tables_.peers.is_usable(id)) return tables_.peers.why_not(id);
  bool found = false;
  owner_of(id.slot).call([&](Worker& worker) {
    if (Peer* peer = worker.peer_of(id)) {
      found = true;
      command(worker, *peer);
    }
  });
  return found ? Status() : tables_.peers.why_not(id);
}

void Workers::call_all(const std::function<void(Worker&)>& command) const {
  for (const auto& worker : workers_) worker->call(command);
}

void Workers::post_all(const std::function<void(Worker&)>& command) const {
  for (const auto& worker : workers_) worker->post(command);
}

void Workers::wake() const {
  for (const auto& worker : workers_) worker->wake();
}

control::Progress Workers::progress() const {
  control::Progress sum;
  for (const auto& worker : workers_) {
    const control::Progress one = worker->progress();
    sum.queued |= one.queued;
    sum.steps += one.steps;
  }
  return sum;
}

Time Workers::step(Time now) {
  Time next = kNever;
  for (const auto& worker : workers_) next = std::min(next, worker->step(now));
  return next;
}

Time Workers::step_for(std::span<Completion> room, std::size_t& filled, Time now) {
  tables_.completions.offer(room);
  const Time next = step(now);
  filled = tables_.completions.filled();
  return next;
}

bool Workers::prepare_sleep() {
  bool quiet = true;
  for (const auto& worker : workers_) quiet = worker->prepare_sleep() && quiet;
  return quiet;
}

void Workers::slept(Time now) {
  for (const auto& worker : workers_) worker->slept(now);
}

void Workers::close() {
  for (const auto& worker : workers_) worker->close();
}

Status Workers::untouched() const {
  for (const auto& worker : workers_)
    if (Status status = worker->untouched(); !status) return status;
  return {};
}

void Workers::end_tasks() {
  for (const auto& worker : workers_) worker->end_task();
}

bool Workers::stepped_here() const {
  return std::ranges::any_of(workers_, [](const auto& worker) { return worker->stepped_here(); });
}

}  // namespace fairway::engine
