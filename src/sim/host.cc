#include "sim/host.h"

#include <algorithm>
#include <utility>

namespace fairway::sim {

namespace {

// No descriptor: a simulated application asks instead of sleeping on one.
class SimSignal final : public Signal {
 public:
  explicit SimSignal(Host& host) : host_(host) {}
  void set() override {
    if (!set_) host_.signalled();
    set_ = true;
  }
  // One that steps its engine itself clears it before each step. Where it does nothing else, time goes on all the same.
  void clear() override {
    set_ = false;
    if (std::exchange(cleared_at_, host_.now()) != host_.now()) spins_ = 0;
    if (++spins_ > kSpins) (void)host_.step_until(host_.now() + kMicrosecond);
  }
  int fd() override { return -1; }
  void set_at(Time) override {}  // nobody can sleep on fd()
  void wait(Time deadline) override {
    while (!set_) {
      if (host_.now() >= deadline) return;
      if (!host_.step_until(deadline)) return;
    }
  }

 private:
  static constexpr int kSpins = 16;

  Host& host_;
  bool set_ = false;
  Time cleared_at_ = 0;
  int spins_ = 0;
};

}  // namespace

Host::Host(Simulation& simulation, std::size_t index, std::size_t place)
    : simulation_(simulation),
      index_(index),
      place_(place),
      skew_(simulation.random().below(kSecond)),
      random_(simulation.random().fork()),
      network_(*this),
      runtime_{*this, *this, *this, network_} {}

Host::~Host() = default;

void Host::fill(std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size();) {
    std::uint64_t word = random_.next();
    for (std::size_t k = 0; k < 8 && i < out.size(); ++k, ++i, word >>= 8) out[i] = static_cast<std::byte>(word);
  }
}

Result<std::unique_ptr<Task>> Host::start(const TaskOptions& options, Stepper& stepper) {
  auto task = std::make_unique<SimTask>();
  task->host = this;
  task->stepper = &stepper;
  task->caller_steps = options.caller_steps;
  task->signal = options.signal;
  tasks_.push_back(std::move(task));
  SimTask& started = *tasks_.back();
  wake(started);
  return std::unique_ptr<Task>(std::make_unique<HostTask>(started));
}

Result<std::unique_ptr<Signal>> Host::make_signal() {
  return std::unique_ptr<Signal>(std::make_unique<SimSignal>(*this));
}

void Host::wake(SimTask& task) {
  if (!task.stepper) return;
  if (task.caller_steps) {
    if (task.signal) task.signal->set();
    return;
  }
  if (task.running || frozen_) {
    task.woken = true;
    return;
  }
  // Waking a sleeper takes a few microseconds; now and then the scheduler takes much longer.
  const bool slow = simulation_.random().chance(5);
  schedule(task, after(simulation_.now(), simulation_.random().between(100, slow ? 300'000 : 5'000)));
}

void Host::schedule(SimTask& task, Time when) {
  if (when >= task.due) return;
  task.due = when;
  simulation_.at(when, &Host::run, &task, 0, ++task.serial);
}

void Host::run(void* object, std::uint64_t, std::uint64_t serial) {
  SimTask& task = *static_cast<SimTask*>(object);
  if (!task.stepper || serial != task.serial) return;
  Host& host = *task.host;
  Simulation& simulation = host.simulation_;
  task.due = kNever;
  if (task.running || host.frozen_) {  // running: it waits inside its step, and the wait brought us here
    task.woken = true;
    return;
  }
  task.running = true;
  task.woken = false;
  Time next = task.stepper->step(host.now());
  if (task.stepper && next > host.now() && !task.stepper->prepare_sleep()) next = host.now();
  task.running = false;
  if (!task.stepper) return;
  if (task.woken || next <= host.now())
    host.schedule(task, after(simulation.now(), simulation.random().between(200, 2'000)));
  else if (next != kNever)
    host.schedule(task, next - host.skew_);
}

bool Host::step_until(Time deadline) {
  if (dead_ && frozen_) bury();  // a call that was under way when the process died must still return to the simulation
  const Time limit = deadline == kNever ? kNever : std::max(deadline, skew_) - skew_;
  if (simulation_.now() >= limit) return false;
  if (simulation_.step(limit)) return true;
  if (limit == kNever)
    simulation_.stuck("a wait without end, and nothing left to happen");
  else
    simulation_.run_until(limit);
  return false;
}

void Host::wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) {
  while (word.load(std::memory_order_acquire) == seen && step_until(deadline)) {
  }
}

void Host::freeze() {
  frozen_ = true;
  simulation_.note(index_, [] { return "frozen"; });
}

void Host::thaw() {
  if (dead_) return;
  frozen_ = false;
  simulation_.note(index_, [] { return "thawed"; });
  for (const auto& task : tasks_)
    if (task->stepper && (task->due == kNever || task->woken)) wake(*task);
}

void Host::kill() {
  frozen_ = dead_ = true;
  simulation_.note(index_, [] { return "killed"; });
  network_.reset_all();
}

void Host::bury() {
  frozen_ = false;
  for (const auto& task : tasks_)
    if (task->stepper && (task->due == kNever || task->woken)) wake(*task);
}

}  // namespace fairway::sim
