#include "engine/machine_discovery.h"

#include <utility>

#include "sys/library_loading.h"

namespace fairway::engine {

MachineDiscovery::MachineDiscovery(Executor& executor, Source source, std::function<void()> known)
    : executor_(executor), source_(std::move(source)), known_(std::move(known)), ended_(source_ == nullptr) {}

void MachineDiscovery::want() {
  if (ended()) return;
  std::lock_guard lock(mutex_);
  if (std::exchange(wanted_, true)) return;
  TaskOptions options;
  options.name = "fairway-machine";
  options.spin_ns = 0;
  auto task = executor_.start(options, *this);
  if (task) {
    task_ = std::move(*task);
    return task_->wake();
  }
  problem_ = task.status();
  ended_.store(true, std::memory_order_release);
}

Time MachineDiscovery::step(Time) {
  if (ended()) return kNever;
  auto model = [this] {
    const sys::LibraryLoading loading;  // of NVML and verbs
    return source_();
  }();
  if (model)
    found_ = std::make_unique<const Expectation>(std::move(*model));
  else
    problem_ = model.status();
  ended_.store(true, std::memory_order_release);
  known_();
  return kNever;
}

void MachineDiscovery::close() {
  std::unique_ptr<Task> task;
  std::lock_guard lock(mutex_);
  wanted_ = true;
  task = std::move(task_);
}

}  // namespace fairway::engine
