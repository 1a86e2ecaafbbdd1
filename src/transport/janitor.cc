#include "transport/janitor.h"

#include <utility>

namespace fairway::transport {

Janitor::~Janitor() {
  finish();
}

void Janitor::finish() {
  const std::lock_guard one_at_a_time(finish_mutex_);
  Task* thread = nullptr;
  {
    const std::lock_guard lock(mutex_);
    thread = task_.get();
  }
  if (thread != nullptr) thread->end();
  // One that comes meanwhile finds the ended thread's place taken, and is done here, behind those before it.
  std::unique_ptr<Task> ended;
  for (bool left = true; left;) {
    while (work_one()) {
    }
    const std::lock_guard lock(mutex_);
    left = !jobs_.empty();
    if (!left) ended = std::move(task_);
  }
}

Status Janitor::post(std::function<void()> job) {
  return take(job);
}

void Janitor::end(std::function<void()> job) {
  if (!take(job)) job();
}

Status Janitor::take(std::function<void()>& job) {
  const std::lock_guard lock(mutex_);
  if (!task_) {
    TaskOptions options;
    options.name = name_;
    options.spin_ns = 0;
    auto task = runtime_.executor.start(options, *this);
    if (!task) return task.status();
    task_ = std::move(*task);
  }
  jobs_.push_back(std::move(job));
  task_->wake();
  return {};
}

bool Janitor::work_one() {
  std::function<void()> job;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return false;
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  job();
  return true;
}

Time Janitor::step(Time now) {
  return work_one() ? now : kNever;
}

}  // namespace fairway::transport
