#include "engine/machine_look.h"

#include <utility>

namespace fairway::engine {

MachineLook::MachineLook(Executor& executor, Source source, std::function<void()> known)
    : executor_(executor), source_(std::move(source)), known_(std::move(known)), ended_(source_ == nullptr) {}

void MachineLook::want() {
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

Time MachineLook::step(Time) {
  if (ended()) return kNever;
  auto model = source_();
  if (model)
    found_ = std::make_unique<const Expectation>(std::move(*model));
  else
    problem_ = model.status();
  ended_.store(true, std::memory_order_release);
  known_();
  return kNever;
}

void MachineLook::close() {
  std::unique_ptr<Task> task;
  std::lock_guard lock(mutex_);
  wanted_ = true;
  task = std::move(task_);
}

}  // namespace fairway::engine
