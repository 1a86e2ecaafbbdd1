#pragma once

#include <array>
#include <memory>
#include <vector>

#include "core/runtime.h"
#include "sim/network.h"
#include "sim/simulation.h"

namespace fairway::sim {

class Strand;

// A Stepper and the time of its next step. Lives as long as its host; a Task refers to it.
struct SimTask {
  Host* host = nullptr;
  Stepper* stepper = nullptr;  // null: the task is gone
  Signal* signal = nullptr;    // caller_steps: set instead of running the stepper
  bool caller_steps = false;
  bool running = false;
  bool woken = false;  // woken while it ran or while its host was frozen
  Time due = kNever;   // time of the one valid event
  std::uint64_t serial = 0;
};

// One machine: its own clock, random stream, steppers and sockets. Owned by the simulation, on its thread.
class Host final : public Clock, public Rng, public Executor {
 public:
  // `place` is its address in the network. A restarted machine is a new Host at the same place.
  Host(Simulation& simulation, std::size_t index, std::size_t place);
  ~Host() override;

  Runtime& runtime() { return runtime_; }
  Simulation& simulation() { return simulation_; }
  std::size_t index() const { return index_; }
  std::size_t place() const { return place_; }
  std::string address() const { return network_.address(); }
  SimNetwork& network() { return network_; }

  // SIGSTOP: no stepper runs; sockets and NICs continue.
  void freeze();
  void thaw();
  bool frozen() const { return frozen_; }
  // SIGKILL: no stepper runs any more, and the kernel resets its connections. The objects still exist; to destroy them,
  // bury() lets their steppers run again, cut off from everyone.
  void kill();
  void bury();
  bool dead() const { return network_.dead(); }

  [[nodiscard]] Time drift() const { return drift_; }

  Time now() override {
    const Time passed = simulation_.now();
    return passed + skew_ + passed / kDriftUnit * drift_ + passed % kDriftUnit * drift_ / kDriftUnit;
  }
  std::uint64_t unix_ns() override { return 1'700'000'000'000'000'000 + simulation_.now(); }
  void fill(std::span<std::byte> out) override;
  Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) override;
  Result<std::unique_ptr<Signal>> make_signal() override;
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override;
  void wake_all(std::atomic<std::uint32_t>&) override;
  void polled_in_vain() override;

  // Sets the handler called when the engine here has something for a caller-stepped application; one call at a time.
  void on_signal(Simulation::Handler handler, void* object) { signal_handler_ = handler, signal_object_ = object; }
  void signalled();
  void add(Strand& strand) { strands_.push_back(&strand); }
  void remove(Strand& strand) { std::erase(strands_, &strand); }
  // From a wake to the step, or to the program's next instruction.
  Time wake_time();

  // Runs the next event of the simulation if it is due by `deadline` on this host's clock; otherwise advances time to
  // `deadline`. Called by a Strand's program: lets the simulation go on, until something wakes it, or the deadline.
  bool step_until(Time deadline);
  // Schedules the task's stepper to run soon.
  void wake(SimTask& task);

 private:
  static void run(void* object, std::uint64_t, std::uint64_t serial);
  void schedule(SimTask& task, Time when);

  Simulation& simulation_;
  const std::size_t index_;
  const std::size_t place_;
  static constexpr Time kDriftUnit = 1'000'000;
  [[nodiscard]] Time when_clock_says(Time time) const;  // by the simulation's

  const Time skew_;   // hosts' clocks differ
  const Time drift_;  // and run faster than the simulation's, by so many millionths
  Random random_;
  SimNetwork network_;
  Runtime runtime_;
  std::vector<std::unique_ptr<SimTask>> tasks_;
  Simulation::Handler signal_handler_ = nullptr;
  void* signal_object_ = nullptr;
  std::vector<Strand*> strands_;
  bool frozen_ = false;
  Time spun_at_ = 0;  // polled_in_vain(): so often at this time
  int spins_ = 0;
};

// The Task that Host::start returns.
class HostTask final : public Task {
 public:
  explicit HostTask(SimTask& task) : task_(task) {}
  ~HostTask() override { end(); }
  void end() override { task_.stepper = nullptr; }
  void wake() override { task_.host->wake(task_); }
  Status watch(int) override { return {ErrorCode::unsupported, "a simulated task has no descriptors"}; }
  void unwatch(int) override {}

 private:
  SimTask& task_;
};

}  // namespace fairway::sim
