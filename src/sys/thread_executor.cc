#include "sys/thread_executor.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include <signal.h>

#include "sys/event_signal.h"
#include "sys/thread_task.h"

namespace fairway::sys {

Result<std::unique_ptr<Task>> ThreadExecutor::start(const TaskOptions& options, Stepper& stepper) {
  return options.caller_steps ? CallerTask::start(options)
                              : ThreadTask::start(options, stepper, clock_, oversubscription_);
}

Result<std::unique_ptr<Signal>> ThreadExecutor::make_signal() {
  return EventSignal::make(clock_);
}

// Uses at most one thread per processor, the caller's included. If no thread can be started, the caller runs every job.
void ThreadExecutor::run_all(std::size_t count, const std::function<void(std::size_t)>& job) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) job(i);
  };
  const std::size_t most = std::min<std::size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  sigset_t all, before;  // signal handlers must run on the application's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (helpers.size() + 1 < most) helpers.emplace_back(work);
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  work();
}

}  // namespace fairway::sys
