#include <algorithm>
#include <utility>

#include "group.h"

// A group's operations on CUDA streams: they are enqueued in their turn, and looked at.
namespace fairway::python {

bool Group::begins_now() {
  const std::lock_guard lock(mutex_);
  if (stop_ || running_ || !queue_.empty()) return false;
  return running_ = true;
}

void Group::in_turn(std::function<Status(Communicator&)> call, bool is_short) {
  (void)session_->engine();
  if (!is_short || !begins_now()) {
    const auto job = std::make_shared<Job>();
    job->whole = [call = std::move(call), own = job.get()](Communicator& communicator) {
      Status status = call(communicator);
      if (!status) own->failure = communicator.failure();
      return status;
    };
    start(job, true);
    check(wait(job, Deadline(std::nullopt)));
    (void)result_of(*job);
    return;
  }
  Status status;
  CollectiveFailure failure;
  {
    const Unlocked unlocked;
    struct Turn {  // over also where `call` throws: the operations behind it go on
      Group& group;
      const CollectiveFailure& failure;
      ~Turn() {
        const std::lock_guard lock(group.mutex_);
        group.running_ = false;
        if (!failure.status) group.failure_ = failure;
        if (!group.queue_.empty() || group.stop_) group.wake_.notify_one();
        group.ended_.notify_all();
      }
    } const turn{*this, failure};
    status = call(*communicator_);
    if (!status) failure = communicator_->failure();
  }
  if (!status) raise_failed(status, failure);
}

// Python code may run where `shown` or `ends` goes, so that is behind the last use of the list.
std::uint64_t Group::register_window(std::uintptr_t address, std::uint64_t size_bytes, py::object memory) {
  const auto shown = std::make_shared<Shown>(Shown{0, std::move(memory)});
  const auto window = std::make_shared<WindowId>();  // the call may go on after Ctrl-C, so it owns what it writes
  shown_.push_back(shown);
  try {
    in_turn(
        [=](Communicator& c) {
          const auto made = c.register_window(reinterpret_cast<void*>(address), size_bytes);
          if (made) *window = *made;
          return made.status();
        },
        false);
  } catch (const py::error_already_set& error) {
    if (error.matches(py::module_::import("fairway.errors").attr("Error"))) std::erase(shown_, shown);
    throw;
  }
  return shown->number = window->number;
}

void Group::deregister_window(std::uint64_t window) {
  in_turn([=](Communicator& c) { return c.deregister_window({window}); }, false);
  const auto found = std::find_if(shown_.begin(), shown_.end(), [=](const auto& one) { return one->number == window; });
  if (found == shown_.end()) return;  // the communicator was closed meanwhile
  const std::shared_ptr<Shown> ends = *found;
  shown_.erase(found);
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

std::vector<StreamMessage> messages_of(const MessageTuples& messages) {
  std::vector<StreamMessage> all;
  for (const auto& [address, bytes, peer, receives] : messages)
    all.push_back({reinterpret_cast<void*>(address), bytes, peer, receives});
  return all;
}

std::optional<Timeout> limit_of(std::optional<double> seconds) {
  return seconds ? std::optional(timeout_of(seconds)) : std::nullopt;
}

}  // namespace fairway::python
