#include "sys/thread_executor.h"

#include "sys/event_signal.h"
#include "sys/thread_task.h"

namespace fairway::sys {

Result<std::unique_ptr<Task>> ThreadExecutor::start(const TaskOptions& options, Stepper& stepper) {
  return options.caller_steps ? CallerTask::start(options) : ThreadTask::start(options, stepper, clock_, crowd_);
}

Result<std::unique_ptr<Signal>> ThreadExecutor::make_signal() {
  return EventSignal::make(clock_);
}

}  // namespace fairway::sys
