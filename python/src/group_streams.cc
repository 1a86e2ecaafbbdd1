#include <utility>

#include "group.h"

// A group's operations on CUDA streams: they are enqueued in their turn, and looked at.
namespace fairway::python {

void Group::in_turn(std::function<Status(Communicator&)> call, bool is_short) {
  (void)session_->engine();
  const auto job = std::make_shared<Job>();
  job->whole = [call = std::move(call), own = job.get()](Communicator& communicator) {
    Status status = call(communicator);
    if (!status) own->failure = communicator.failure();
    return status;
  };
  const bool now = [&] {
    const std::lock_guard lock(mutex_);
    if (!is_short || stop_ || running_ || !queue_.empty()) return false;
    return running_ = true;
  }();
  if (now) {
    const py::gil_scoped_release unlocked;
    (void)run(*job, true);
    const std::lock_guard lock(mutex_);
    running_ = false;
    if (!job->failure.status) failure_ = job->failure;
    if (!queue_.empty() || stop_) wake_.notify_one();
    ended_.notify_all();
  } else {
    start(job, true);
    check(wait(job, Deadline(std::nullopt)));
  }
  (void)result_of(*job);
}

void Group::watch_streams() {
  const std::lock_guard lock(mutex_);
  watches_ = true;
  wake_.notify_one();
}

void Group::look_at_streams(Lock& lock) {
  if (running_) return;  // whoever runs an operation looks, too
  running_ = true;
  lock.unlock();
  const Status status = communicator_->stream_status();
  lock.lock();
  running_ = false;
  if (!status) {
    failure_ = communicator_->failure();
    watches_ = false;
  }
  ended_.notify_all();
}

}  // namespace fairway::python
