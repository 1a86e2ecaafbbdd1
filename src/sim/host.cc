#include "sim/host.h"

#include <algorithm>
#include <utility>

#include "sim/fiber.h"

namespace fairway::sim {

namespace {

constexpr Time kSteadyWake = 20;
constexpr int kSpins = 16;

// Without a descriptor: a simulated application polls instead of sleeping on one.
class SimSignal final : public Signal {
 public:
  explicit SimSignal(Host& host) : host_(host) {}
  void set() override {
    if (!set_) host_.signalled();
    set_ = true;
  }
  void clear() override {  // a caller that waits does it before each step
    set_ = false;
    host_.polled_in_vain();
  }
  int fd() override { return -1; }
  void set_at(Time) override {}  // no application can sleep on fd()
  void wait(Time deadline) override {
    while (!set_) {
      if (host_.now() >= deadline) return;
      if (!host_.step_until(deadline)) return;
    }
  }

 private:
  Host& host_;
  bool set_ = false;
};

}  // namespace

Host::Host(Simulation& simulation, std::size_t index, std::size_t place)
    : simulation_(simulation),
      index_(index),
      place_(place),
      skew_(simulation.random().below(kSecond)),
      drift_(simulation.drift() != 0 ? simulation.random().below(simulation.drift()) : 0),
      random_(simulation.random().fork()),
      network_(simulation, index, place),
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
  schedule(task, after(simulation_.now(), wake_time()));
}

// Waking a thread takes a few microseconds; sometimes the scheduler takes much longer.
Time Host::wake_time() {
  if (simulation_.steady()) return kSteadyWake;
  const bool slow = simulation_.random().chance(5);
  return simulation_.random().between(100, slow ? 300'000 : 5'000);
}

void Host::signalled() {
  for (Strand* const each : strands_) each->wake();
  if (signal_handler_ != nullptr) signal_handler_(signal_object_, 0, 0);
}

void Host::wake_all(std::atomic<std::uint32_t>&) {
  for (Strand* const each : strands_) each->wake();
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
  if (task.running || host.frozen_) {  // running: its step waits, and that wait led here
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
    host.schedule(task,
                  after(simulation.now(), simulation.steady() ? kSteadyWake : simulation.random().between(200, 2'000)));
  else if (next != kNever)
    host.schedule(task, host.when_clock_says(next));
}

Time Host::when_clock_says(Time time) const {
  const auto reads = [this](Time passed) {
    return passed + skew_ + passed / kDriftUnit * drift_ + passed % kDriftUnit * drift_ / kDriftUnit;
  };
  const Time since = std::max(time, skew_) - skew_;
  if (drift_ == 0) return since;
  Time at = since - since / (kDriftUnit + drift_) * drift_;
  at -= std::min(at, Time{kDriftUnit});
  for (Time step = 2 * kDriftUnit; step > 0; step /= 2)
    while (reads(at + step) <= time) at += step;
  return reads(at) < time ? at + 1 : at;
}

void Host::polled_in_vain() {
  if (std::exchange(spun_at_, now()) != now()) spins_ = 0;
  if (++spins_ > kSpins) (void)step_until(now() + kMicrosecond);
}

bool Host::step_until(Time deadline) {
  if (dead() && frozen_) bury();  // a call under way when the process died must still return to the simulation
  const Time limit = deadline == kNever ? kNever : when_clock_says(deadline);
  Strand* const strand = Strand::current();
  if (strand != nullptr && &strand->host() == this) return strand->pause(limit);
  if (simulation_.now() >= limit) return false;
  if (simulation_.step(limit)) return true;
  if (limit == kNever)
    simulation_.stuck("deadlock: a wait without a deadline, and no event left");
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
  if (dead()) return;
  frozen_ = false;
  simulation_.note(index_, [] { return "thawed"; });
  for (Strand* const each : strands_) each->thawed();
  for (const auto& task : tasks_)
    if (task->stepper && (task->due == kNever || task->woken)) wake(*task);
}

void Host::kill() {
  frozen_ = true;
  simulation_.note(index_, [] { return "killed"; });
  network_.kill();
}

void Host::bury() {
  frozen_ = false;
  for (Strand* const each : strands_) each->thawed();
  for (const auto& task : tasks_)
    if (task->stepper && (task->due == kNever || task->woken)) wake(*task);
}

}  // namespace fairway::sim
